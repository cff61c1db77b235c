#include "comm/mpi/mpi_moves.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "third_party/absl_compat/check.h"

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

// A row of so many bytes. Types stay until the process ends.
struct RowType {
  explicit RowType(int bytes) {
    static auto* types = new std::map<int, MPI_Datatype>;
    const auto [it, added] = types->try_emplace(bytes, MPI_DATATYPE_NULL);
    if (added) error = MPI_Type_contiguous(bytes, MPI_BYTE, &it->second);
    if (added && error == MPI_SUCCESS) error = MPI_Type_commit(&it->second);
    type = it->second;
  }

  MPI_Datatype type = MPI_BYTE;
  int error = MPI_SUCCESS;
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

MpiStart AllToAllRows(const void* in, const std::vector<int64_t>& send_counts, void* out,
                      const std::vector<int64_t>& receive_counts, int64_t row_bytes) {
  // MPI reads them until the request has ended.
  struct Layout {
    explicit Layout(const std::vector<int64_t>& wide) {
      int64_t begin = 0;
      for (const int64_t count : wide) {
        counts.push_back(static_cast<int>(count));
        begins.push_back(static_cast<int>(begin));
        begin += count;
      }
      CHECK_LE(begin, std::numeric_limits<int>::max()) << "rows of an all-to-all";
    }
    std::vector<int> counts, begins;
  };
  CHECK_LE(row_bytes, std::numeric_limits<int>::max());
  return [=, send = std::make_shared<Layout>(send_counts),
          receive = std::make_shared<Layout>(receive_counts)](MPI_Comm comm,
                                                              std::vector<MPI_Request>& requests) {
    const RowType row(static_cast<int>(row_bytes));
    if (row.error != MPI_SUCCESS) return row.error;
    MPI_Request request = MPI_REQUEST_NULL;
    const int error =
        MPI_Ialltoallv(in, send->counts.data(), send->begins.data(), row.type, out,
                       receive->counts.data(), receive->begins.data(), row.type, comm, &request);
    if (error == MPI_SUCCESS) requests.push_back(request);
    return error;
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
