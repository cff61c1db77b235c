#include "comm/mpi/mpi_moves.h"

#include <algorithm>
#include <map>
#include <utility>

namespace comm {
namespace {

const char* At(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
char* At(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

// What of each rank's block of `bytes` goes in one request: `count` elements of a type whose
// extent is the block, so that MPI finds that piece of every block; a whole block is plain bytes.
struct Piece {
  Piece(int64_t piece_bytes, int64_t block_bytes) {
    if (piece_bytes == block_bytes) {
      count = static_cast<int>(piece_bytes);
      return;
    }
    // They stay until the process ends: there are as many as there are sizes.
    static auto* types = new std::map<std::pair<int64_t, int64_t>, MPI_Datatype>;
    const auto [it, added] = types->try_emplace({piece_bytes, block_bytes}, MPI_DATATYPE_NULL);
    if (added) error = Make(static_cast<int>(piece_bytes), block_bytes, &it->second);
    count = 1;
    type = it->second;
  }

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
  int error = MPI_SUCCESS;

 private:
  static int Make(int bytes, int64_t extent, MPI_Datatype* type) {
    MPI_Datatype packed = MPI_DATATYPE_NULL;
    int error = MPI_Type_contiguous(bytes, MPI_BYTE, &packed);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Type_create_resized(packed, 0, extent, type);
    MPI_Type_free(&packed);
    return error == MPI_SUCCESS ? MPI_Type_commit(type) : error;
  }
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
                          const Piece one(count, bytes);
                          if (one.error != MPI_SUCCESS) return one.error;
                          return MPI_Ialltoall(At(in, begin), one.count, one.type, At(out, begin),
                                               one.count, one.type, comm, request);
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
          const Piece one(count, bytes);
          if (one.error != MPI_SUCCESS) return one.error;
          return MPI_Iallgather(in_place ? MPI_IN_PLACE : At(in, begin), one.count, one.type,
                                At(out, begin), one.count, one.type, comm, request);
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
