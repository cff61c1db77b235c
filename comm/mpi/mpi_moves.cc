#include "comm/mpi/mpi_moves.h"

#include <algorithm>

namespace comm {
namespace {

const char* At(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
char* At(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

// `count` bytes, of which the next ones begin `extent` bytes after the first: a piece of a block,
// so that MPI finds that piece of each rank's block. Freed at once by its owner, which MPI allows
// for a type in use.
class PieceType {
 public:
  PieceType(int64_t count, int64_t extent) {
    MPI_Datatype packed = MPI_DATATYPE_NULL;
    error_ = MPI_Type_contiguous(static_cast<int>(count), MPI_BYTE, &packed);
    if (error_ != MPI_SUCCESS) return;
    error_ = MPI_Type_create_resized(packed, 0, extent, &type_);
    MPI_Type_free(&packed);
    if (error_ == MPI_SUCCESS) error_ = MPI_Type_commit(&type_);
  }
  PieceType(const PieceType&) = delete;
  PieceType& operator=(const PieceType&) = delete;
  ~PieceType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  int error() const { return error_; }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  int error_ = MPI_SUCCESS;
};

// start(begin, count, request) for each piece of `bytes`.
template <typename Start>
int ForEachPiece(int64_t bytes, int64_t piece, std::vector<MPI_Request>& requests, Start start) {
  for (int64_t begin = 0; begin < bytes; begin += piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = start(begin, std::min(piece, bytes - begin), &request);
    if (error != MPI_SUCCESS) return error;
    requests.push_back(request);
  }
  return MPI_SUCCESS;
}

}  // namespace

MpiStart AllToAll(const void* in, void* out, int64_t bytes, int64_t piece) {
  return [=](MPI_Comm comm, std::vector<MPI_Request>& requests) {
    return ForEachPiece(bytes, piece, requests,
                        [&](int64_t begin, int64_t count, MPI_Request* request) {
                          const PieceType type(count, bytes);
                          if (type.error() != MPI_SUCCESS) return type.error();
                          return MPI_Ialltoall(At(in, begin), 1, type.get(), At(out, begin), 1,
                                               type.get(), comm, request);
                        });
  };
}

MpiStart AllGather(const void* in, void* out, int64_t bytes, int64_t piece) {
  return [=](MPI_Comm comm, std::vector<MPI_Request>& requests) {
    int rank = 0;
    const int error = MPI_Comm_rank(comm, &rank);
    if (error != MPI_SUCCESS) return error;
    const bool in_place = in == At(out, rank * bytes);
    return ForEachPiece(
        bytes, piece, requests, [&](int64_t begin, int64_t count, MPI_Request* request) {
          const PieceType type(count, bytes);
          if (type.error() != MPI_SUCCESS) return type.error();
          return MPI_Iallgather(in_place ? MPI_IN_PLACE : At(in, begin), 1, type.get(),
                                At(out, begin), 1, type.get(), comm, request);
        });
  };
}

MpiStart Broadcast(void* x, int64_t bytes, int root, int64_t piece) {
  return [=](MPI_Comm comm, std::vector<MPI_Request>& requests) {
    return ForEachPiece(
        bytes, piece, requests, [&](int64_t begin, int64_t count, MPI_Request* request) {
          return MPI_Ibcast(At(x, begin), static_cast<int>(count), MPI_BYTE, root, comm, request);
        });
  };
}

MpiStart Barrier() {
  return [](MPI_Comm comm, std::vector<MPI_Request>& requests) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Ibarrier(comm, &request);
    if (error == MPI_SUCCESS) requests.push_back(request);
    return error;
  };
}

}  // namespace comm
