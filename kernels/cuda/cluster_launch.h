// Launching kernels whose blocks stay on their multiprocessor and share work in clusters.
#ifndef KERNELS_CUDA_CLUSTER_LAUNCH_H_
#define KERNELS_CUDA_CLUSTER_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_queue.h"

namespace kernels::cuda {

struct ClusterLaunch {
  int blocks = 1;   // of a cluster
  int threads = 0;  // of a block
  int shared_bytes = 0;
  int sm_count = 0;  // of the card
  int most = 0;      // clusters that have work
};

// As many clusters as the card holds at a time: those of more than two blocks do not fill every
// GPU.
template <typename... Expected, typename... Given>
void LaunchClusters(void (*kernel)(Expected...), const ClusterLaunch& launch, cudaStream_t stream,
                    Given&&... arguments) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  launch.shared_bytes));
  const auto blocks = static_cast<unsigned>(launch.blocks);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;  // at a time
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  clusters = std::min({clusters, std::max(launch.sm_count / launch.blocks, 1), launch.most});
  config.gridDim = dim3(static_cast<unsigned>(clusters) * blocks);
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Given>(arguments)...));
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_CLUSTER_LAUNCH_H_
