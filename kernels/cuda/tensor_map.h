// Descriptions of tensors for TMA of sm_90 and later.
#ifndef KERNELS_CUDA_TENSOR_MAP_H_
#define KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/dtype.h"

namespace kernels::cuda {

// From the driver that the runtime has opened, so that nothing links against it.
inline decltype(&cuTensorMapEncodeTiled) TensorMapEncoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &result));
#else
    CUDA_CHECK(
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result));
#endif
    CHECK(result == cudaDriverEntryPointSuccess) << "the driver has no cuTensorMapEncodeTiled";
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

// For boxes of `box` out of `dims`, innermost first; strides in elements, of dims 1, 2, ... In
// shared memory a box's rows have 128 bytes, swizzled; zeros beyond the edges.
template <int rank, typename T>
CUtensorMap TensorMap(const T* data, const int64_t (&dims)[rank],
                      const int64_t (&strides)[rank - 1], const int (&box)[rank]) {
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, uint8_t>);
  cuuint64_t sizes[rank], bytes[rank - 1];
  cuuint32_t boxes[rank], steps[rank];
  for (int i = 0; i < rank; ++i) {
    sizes[i] = dims[i];
    boxes[i] = box[i];
    steps[i] = 1;
    if (i > 0) bytes[i - 1] = strides[i - 1] * sizeof(T);
  }
  CUtensorMap map;
  const CUresult result = TensorMapEncoder()(
      &map,
      std::is_same_v<T, BF16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
      rank, const_cast<T*>(data), sizes, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result)
                                << " for " << rank << " dims, inner " << dims[0] << " x "
                                << dims[rank - 1];
  return map;
}

}  // namespace kernels::cuda

#endif  // KERNELS_CUDA_TENSOR_MAP_H_
