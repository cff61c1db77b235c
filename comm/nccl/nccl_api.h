// NCCL's functions, looked up in the library that the machine has.
#ifndef COMM_NCCL_NCCL_API_H_
#define COMM_NCCL_NCCL_API_H_

#include <nccl.h>

#include "absl/status/statusor.h"

namespace comm {

// Members are named like NCCL's functions without the prefix.
struct NcclApi {
  decltype(&ncclGetVersion) GetVersion;
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclGetErrorString) GetErrorString;
  decltype(&ncclGetLastError) GetLastError;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&ncclCommFinalize) CommFinalize;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclReduceScatter) ReduceScatter;
  decltype(&ncclAllGather) AllGather;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclGroupStart) GroupStart;
  decltype(&ncclGroupEnd) GroupEnd;
  decltype(&ncclSend) Send;
  decltype(&ncclRecv) Recv;
};

// Opens libnccl.so.2 at the first call; the library stays open. NotFound if there is none,
// FailedPrecondition if it is older than 2.18 (with both versions).
absl::StatusOr<const NcclApi*> LoadNccl();

}  // namespace comm

#endif  // COMM_NCCL_NCCL_API_H_
