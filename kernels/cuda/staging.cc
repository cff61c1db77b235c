#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/cuda_queue.h"

namespace kernels {
namespace {

constexpr int64_t kRingBytes = int64_t{64} << 20;
constexpr int64_t kPieceBytes = int64_t{16} << 20;

}  // namespace

UploadRing::UploadRing() {
  void* memory = nullptr;
  CUDA_CHECK(cudaHostAlloc(&memory, kRingBytes, cudaHostAllocDefault));
  memory_ = static_cast<char*>(memory);
}

UploadRing::~UploadRing() {
  for (const Piece& piece : pending_) {
    CUDA_CHECK(cudaEventSynchronize(piece.copied));
    CUDA_CHECK(cudaEventDestroy(piece.copied));
  }
  for (cudaEvent_t event : events_) CUDA_CHECK(cudaEventDestroy(event));
  CUDA_CHECK(cudaFreeHost(memory_));
}

int64_t UploadRing::Reserve(int64_t bytes) {
  while (!pending_.empty()) {  // what has been copied is in nobody's way
    const cudaError_t copied = cudaEventQuery(pending_.front().copied);
    if (copied == cudaErrorNotReady) {
      (void)cudaGetLastError();
      break;
    }
    CUDA_CHECK(copied);
    events_.push_back(pending_.front().copied);
    pending_.pop_front();
  }
  if (next_ + bytes > kRingBytes) next_ = 0;
  const int64_t begin = next_, end = next_ + bytes;
  // Pieces are pending in the order of the ring, so those in the way are the oldest ones.
  while (!pending_.empty()) {
    const Piece& oldest = pending_.front();
    const bool in_the_way = std::any_of(pending_.begin(), pending_.end(), [&](const Piece& piece) {
      return piece.begin < end && begin < piece.end;
    });
    if (!in_the_way) break;
    CUDA_CHECK(cudaEventSynchronize(oldest.copied));
    events_.push_back(oldest.copied);
    pending_.pop_front();
  }
  next_ = end;
  return begin;
}

void UploadRing::Upload(const void* host, void* device, int64_t bytes, cudaStream_t stream) {
  for (int64_t done = 0; done < bytes; done += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - done);
    const int64_t at = Reserve(piece);
    std::memcpy(memory_ + at, static_cast<const char*>(host) + done, piece);
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(device) + done, memory_ + at, piece,
                               cudaMemcpyHostToDevice, stream));
    cudaEvent_t copied = nullptr;
    if (events_.empty()) {
      CUDA_CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    } else {
      copied = events_.back();
      events_.pop_back();
    }
    CUDA_CHECK(cudaEventRecord(copied, stream));
    pending_.push_back({at, at + piece, copied});
  }
}

class ReadbackPool::Pinned : public Readback {
 public:
  Pinned(std::shared_ptr<ReadbackPool> pool, Buffer buffer)
      : pool_(std::move(pool)), buffer_(buffer) {}
  ~Pinned() override {
    Wait();  // the copy must not land in a buffer that somebody else has got
    pool_->free_.push_back(buffer_);
  }
  const void* Wait() override {
    CUDA_CHECK(cudaEventSynchronize(buffer_.copied));
    return buffer_.memory;
  }

 private:
  const std::shared_ptr<ReadbackPool> pool_;
  const Buffer buffer_;
};

ReadbackPool::~ReadbackPool() {
  for (const Buffer& buffer : free_) {
    CUDA_CHECK(cudaEventDestroy(buffer.copied));
    CUDA_CHECK(cudaFreeHost(buffer.memory));
  }
}

std::unique_ptr<Readback> ReadbackPool::Start(const Tensor& tensor, cudaStream_t stream) {
  Buffer buffer;
  const auto fits = [&](const Buffer& b) { return b.bytes >= tensor.bytes(); };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found != free_.end()) {
    buffer = *found;
    free_.erase(found);
  } else {
    buffer.bytes = std::max<int64_t>(4096, tensor.bytes());
    CUDA_CHECK(cudaHostAlloc(&buffer.memory, buffer.bytes, cudaHostAllocDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming));
  }
  CUDA_CHECK(cudaMemcpyAsync(buffer.memory, tensor.data(), tensor.bytes(), cudaMemcpyDeviceToHost,
                             stream));
  CUDA_CHECK(cudaEventRecord(buffer.copied, stream));
  return std::make_unique<Pinned>(shared_from_this(), buffer);
}

}  // namespace kernels
