#include "kernels/ops/op_cost.h"

#include <algorithm>
#include <sstream>

#include "kernels/ops/cost_terms.h"

namespace kernels {

const char* Name(OpPhase phase) {
  constexpr const char* kNames[kOpPhases] = {
      "gemm", "attention", "norm/elementwise", "head+loss", "embedding", "optimizer", "other"};
  return kNames[static_cast<int>(phase)];
}

std::string Text(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

std::string Text(const Tensor& a, const Tensor& b) { return Text(a) + " x " + Text(b); }

double NamedRowBytes(const Tensor& tokens, const Tensor& table) {
  if (!table) return 0;
  const int64_t width = table.cols() * SizeOf(table.dtype());
  return static_cast<double>(std::min(tokens.size(), table.rows()) * width);
}

double GateFeatureBytes(const Tensor& o, const Tensor& gate) {
  return static_cast<double>(o.rows() * gate.cols() * SizeOf(o.dtype()));
}

}  // namespace kernels
