#include "comm/nccl/fake_gpu.h"

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

struct Event {
  int pending = 0;  // records that have not run
};

// An entry of a stream: true once it has run.
using Work = std::function<bool()>;

struct Stream {
  std::deque<Work> work;
  bool blocked = false;
};

// A send that its stream has come to.
struct Sent {
  const void* from;
  size_t bytes;
  bool received = false;
};

// All ranks of one id.
struct World {
  int size = 0;
  std::map<int64_t, int> arrived;  // ranks that have enqueued that collective
  // By sender and receiver, those not received yet, in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Sent>>> sent;
};

struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
  int64_t next = 0;
  FakeFaults faults;
  bool aborted = false;
};

// One lock for everything that the fakes know.
std::mutex mutex;
std::set<Stream*> streams;
std::map<int64_t, std::shared_ptr<World>> worlds;
int64_t next_world = 1;
int comms_alive = 0;
// Of the group that the thread has open: what the stream has to end. Without one: null.
struct Group {
  std::vector<std::pair<cudaStream_t, Work>> work;
};
thread_local std::unique_ptr<Group> group;
thread_local FakeFaults faults_of_thread;

Event* Of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }
Stream* Of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }
Comm* Of(ncclComm_t comm) { return reinterpret_cast<Comm*>(comm); }

// Runs what can run on all streams.
void Advance() {
  for (bool progress = true; progress;) {
    progress = false;
    for (Stream* stream : streams) {
      while (!stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        progress = true;
      }
    }
  }
}

// Communicators stay in memory, as aborted ones have work on streams.
std::deque<Comm>& Comms() {
  static std::deque<Comm>* comms = new std::deque<Comm>;
  return *comms;
}

// Events too, as streams may still name them.
std::deque<Event>& Events() {
  static std::deque<Event>* events = new std::deque<Event>;
  return *events;
}

ncclResult_t Enqueue(ncclComm_t handle, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  Comm* const comm = Of(handle);
  const int64_t number = comm->next++;
  bool arrived = false;
  Of(stream)->work.push_back([comm, number, arrived]() mutable {
    if (!std::exchange(arrived, true)) ++comm->world->arrived[number];
    return comm->aborted || comm->world->arrived[number] == comm->world->size;
  });
  Advance();
  return ncclInProgress;  // as a communicator that does not block may say
}

ncclResult_t GetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t GetUniqueId(ncclUniqueId* id) {
  std::lock_guard<std::mutex> lock(mutex);
  worlds[next_world] = std::make_shared<World>();
  std::memcpy(id->internal, &next_world, sizeof(next_world));
  ++next_world;
  return ncclSuccess;
}
const char* GetErrorString(ncclResult_t) { return "injected"; }
const char* GetLastError(ncclComm_t) { return ""; }
ncclResult_t CommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                ncclConfig_t*) {
  std::lock_guard<std::mutex> lock(mutex);
  int64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::shared_ptr<World> world = worlds.at(number);
  world->size = size;
  Comms().push_back(
      {.world = world, .rank = rank, .next = 0, .faults = faults_of_thread, .aborted = false});
  *comm = reinterpret_cast<ncclComm_t>(&Comms().back());
  ++comms_alive;
  return ncclInProgress;
}
ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  std::lock_guard<std::mutex> lock(mutex);
  const FakeFaults& faults = Of(comm)->faults;
  CHECK(!Of(comm)->aborted) << "an aborted communicator is used";
  const bool fails = faults.fails_at >= 0 && Of(comm)->next > faults.fails_at;
  *result = faults.never_connects ? ncclInProgress : fails ? ncclSystemError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t CommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t CommDestroy(ncclComm_t) {
  std::lock_guard<std::mutex> lock(mutex);
  --comms_alive;
  return ncclSuccess;
}
ncclResult_t CommAbort(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(mutex);
  CHECK(!std::exchange(Of(comm)->aborted, true)) << "aborted twice";
  --comms_alive;
  Advance();
  return ncclSuccess;
}
ncclResult_t ReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Enqueue(comm, stream);
}
ncclResult_t AllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm,
                       cudaStream_t stream) {
  return Enqueue(comm, stream);
}
ncclResult_t AllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                       cudaStream_t stream) {
  return Enqueue(comm, stream);
}
ncclResult_t Broadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                       cudaStream_t stream) {
  return Enqueue(comm, stream);
}

ncclResult_t GroupStart() {
  CHECK(group == nullptr) << "a group within a group";
  group = std::make_unique<Group>();
  return ncclSuccess;
}
ncclResult_t Send(const void* from, size_t bytes, ncclDataType_t, int peer, ncclComm_t handle,
                  cudaStream_t stream) {
  CHECK(group != nullptr) << "a send without a group may wait for ever";
  Comm* const comm = Of(handle);
  std::shared_ptr<Sent> sent;
  group->work.emplace_back(stream, [=]() mutable {
    if (sent == nullptr) {
      sent = std::make_shared<Sent>(Sent{from, bytes});
      comm->world->sent[{comm->rank, peer}].push_back(sent);
    }
    return sent->received || comm->aborted;
  });
  return ncclInProgress;
}
ncclResult_t Recv(void* to, size_t bytes, ncclDataType_t, int peer, ncclComm_t handle,
                  cudaStream_t stream) {
  CHECK(group != nullptr) << "a receive without a group may wait for ever";
  Comm* const comm = Of(handle);
  bool received = false;
  group->work.emplace_back(stream, [=]() mutable {
    std::deque<std::shared_ptr<Sent>>& there = comm->world->sent[{peer, comm->rank}];
    if (!received && !there.empty()) {
      const std::shared_ptr<Sent> sent = there.front();
      there.pop_front();
      CHECK_EQ(sent->bytes, bytes) << "from rank " << peer << " to rank " << comm->rank;
      std::memcpy(to, sent->from, bytes);
      sent->received = received = true;
    }
    return received || comm->aborted;
  });
  return ncclInProgress;
}
// The parts of a group make progress side by side.
ncclResult_t GroupEnd() {
  std::lock_guard<std::mutex> lock(mutex);
  const std::unique_ptr<Group> ended = std::exchange(group, nullptr);
  CHECK(ended != nullptr) << "no group is open";
  if (ended->work.empty()) return ncclSuccess;
  std::vector<Work> parts;
  for (auto& [stream, part] : ended->work) {
    CHECK(stream == ended->work[0].first) << "a group on two streams";
    parts.push_back(std::move(part));
  }
  Of(ended->work[0].first)->work.push_back([parts = std::move(parts)]() mutable {
    bool done = true;
    for (Work& part : parts) done = part() && done;
    return done;
  });
  Advance();
  return ncclInProgress;
}

}  // namespace

const NcclApi& FakeNccl() {
  static const NcclApi api = {.GetVersion = GetVersion,
                              .GetUniqueId = GetUniqueId,
                              .GetErrorString = GetErrorString,
                              .GetLastError = GetLastError,
                              .CommInitRankConfig = CommInitRankConfig,
                              .CommGetAsyncError = CommGetAsyncError,
                              .CommFinalize = CommFinalize,
                              .CommDestroy = CommDestroy,
                              .CommAbort = CommAbort,
                              .ReduceScatter = ReduceScatter,
                              .AllGather = AllGather,
                              .AllReduce = AllReduce,
                              .Broadcast = Broadcast,
                              .GroupStart = GroupStart,
                              .GroupEnd = GroupEnd,
                              .Send = Send,
                              .Recv = Recv};
  return api;
}

void SetFakeFaults(const FakeFaults& faults) { faults_of_thread = faults; }

int FakeCommsAlive() {
  std::lock_guard<std::mutex> lock(mutex);
  return comms_alive;
}

FakeStream::FakeStream() { cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0); }
FakeStream::~FakeStream() { cudaStreamDestroy(stream_); }

void FakeStream::Block() {
  std::lock_guard<std::mutex> lock(mutex);
  Stream* const stream = Of(stream_);
  stream->blocked = true;
  stream->work.push_back([stream] { return !stream->blocked; });
}
void FakeStream::Unblock() {
  std::lock_guard<std::mutex> lock(mutex);
  Of(stream_)->blocked = false;
  Advance();
}

}  // namespace comm

// CUDA's runtime.

using comm::Advance;
using comm::mutex;
using comm::Of;

extern "C" {

const char* cudaGetErrorName(cudaError_t) { return "fake"; }
const char* cudaGetErrorString(cudaError_t) { return "fake"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof(*properties));
  properties->uuid.bytes[0] = static_cast<char>(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = *highest = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  std::lock_guard<std::mutex> lock(mutex);
  auto* const made = new comm::Stream;
  comm::streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  comm::streams.erase(Of(stream));
  delete Of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::lock_guard<std::mutex> lock(mutex);
  Of(stream)->work.push_back([event] { return Of(event)->pending == 0; });
  Advance();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  std::lock_guard<std::mutex> lock(mutex);
  *event = reinterpret_cast<cudaEvent_t>(&comm::Events().emplace_back());
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  ++Of(event)->pending;
  Of(stream)->work.push_back([event] {
    --Of(event)->pending;
    return true;
  });
  Advance();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::lock_guard<std::mutex> lock(mutex);
  return Of(event)->pending == 0 ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"
