#include "comm/nccl/nccl_api.h"

#include <cuda_toolkit.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"
#include "third_party/cuda/dso.h"
#include "third_party/dso/dso.h"

namespace comm {
namespace {

// Communicators that do not block exist since 2.14; this leaves some versions for mending them.
constexpr int kOldest = NCCL_VERSION(2, 18, 1);

std::string VersionText(int code) {
  return absl::StrCat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function** function) {
  ABSL_ASSIGN_OR_RETURN(*function, dso::Symbol<Function>(library, name));
  return absl::OkStatus();
}

absl::StatusOr<NcclApi> Load() {
  const absl::StatusOr<void*> library = cuda::OpenLibrary("libnccl.so.2", cuda_toolkit::kNcclWheel);
  if (!library.ok()) {
    return absl::NotFoundError(
        absl::StrCat("more than one rank needs NCCL: ", library.status().message()));
  }
  NcclApi api = {};
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGetVersion", &api.GetVersion));
  int version = 0;
  if (api.GetVersion(&version) != ncclSuccess || version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "libnccl.so.2 is version ", VersionText(version), ", at least ", VersionText(kOldest),
        " is needed; the program was built with ", VersionText(NCCL_VERSION_CODE)));
  }
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGetUniqueId", &api.GetUniqueId));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGetErrorString", &api.GetErrorString));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGetLastError", &api.GetLastError));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclCommInitRankConfig", &api.CommInitRankConfig));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclCommGetAsyncError", &api.CommGetAsyncError));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclCommFinalize", &api.CommFinalize));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclCommDestroy", &api.CommDestroy));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclCommAbort", &api.CommAbort));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclReduceScatter", &api.ReduceScatter));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclAllGather", &api.AllGather));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclAllReduce", &api.AllReduce));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclBroadcast", &api.Broadcast));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGroupStart", &api.GroupStart));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclGroupEnd", &api.GroupEnd));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclSend", &api.Send));
  ABSL_RETURN_IF_ERROR(Find(*library, "ncclRecv", &api.Recv));
  return api;
}

}  // namespace

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const absl::StatusOr<NcclApi>* api = new absl::StatusOr<NcclApi>(Load());
  if (!api->ok()) return api->status();
  return &**api;
}

}  // namespace comm
