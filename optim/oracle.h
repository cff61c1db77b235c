// The orthogonalisation and the update rules in float64, from their definitions.
#ifndef OPTIM_ORACLE_H_
#define OPTIM_ORACLE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace optim {

using Matrix = std::vector<double>;  // row-major

inline Matrix Transposed(const Matrix& x, int64_t rows, int64_t cols) {
  Matrix y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) y[j * rows + i] = x[i * cols + j];
  }
  return y;
}

inline Matrix Product(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Matrix c(m * n, 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return c;
}

inline double FrobeniusNorm(const Matrix& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

// How an orthogonaliser of five quintic polynomials is defined.
struct QuinticRule {
  double norm_scale, norm_eps;
  double abc[5][3];
};

constexpr QuinticRule kNewtonSchulzRule = {1,
                                           1e-7,
                                           {{3.4445, -4.7750, 2.0315},
                                            {3.4445, -4.7750, 2.0315},
                                            {3.4445, -4.7750, 2.0315},
                                            {3.4445, -4.7750, 2.0315},
                                            {3.4445, -4.7750, 2.0315}}};
constexpr QuinticRule kNewtonSchulzTunedRule = {1,
                                                1e-7,
                                                {{4.0848, -6.8946, 2.9270},
                                                 {3.9505, -6.3029, 2.6377},
                                                 {3.7418, -5.5913, 2.3037},
                                                 {2.8769, -3.1427, 1.2046},
                                                 {2.8366, -3.0525, 1.2012}}};
constexpr QuinticRule kPolarExpressRule = {
    1.02,
    1e-6,
    {{8.156554524902461, -22.48329292557795, 15.878769915207462},
     {4.042929935166739, -2.808917465908714, 0.5000178451051316},
     {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
     {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
     {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}};

// A singular value's way after the division by the norm.
inline double QuinticScalar(const QuinticRule& rule, double s) {
  for (const double(&f)[3] : rule.abc) s = f[0] * s + f[1] * s * s * s + f[2] * std::pow(s, 5);
  return s;
}

// `stored`: what becomes of each value that is kept in memory between two products.
inline Matrix QuinticOracle(
    const QuinticRule& rule, Matrix x, int64_t rows, int64_t cols,
    double (*stored)(double) = [](double value) { return value; }) {
  if (rows > cols) {
    return Transposed(QuinticOracle(rule, Transposed(x, rows, cols), cols, rows, stored), cols,
                      rows);
  }
  const double norm = rule.norm_scale * FrobeniusNorm(x) + rule.norm_eps;
  for (double& value : x) value = stored(value / norm);
  for (const double(&f)[3] : rule.abc) {
    Matrix a = Product(x, Transposed(x, rows, cols), rows, cols, rows);
    for (double& value : a) value = stored(value);
    Matrix b = Product(a, a, rows, rows, rows);
    for (size_t j = 0; j < b.size(); ++j) b[j] = stored(f[1] * a[j] + f[2] * b[j]);
    const Matrix bx = Product(b, x, rows, rows, cols);
    for (size_t j = 0; j < x.size(); ++j) x[j] = stored(f[0] * x[j] + bx[j]);
  }
  return x;
}

// The cascade: six polynomials, and the norm from the trace of the first Gram matrix, which is
// rescaled and not computed again.
constexpr double kCascade[6][3] = {{3.923798038567, -6.095026865488, 3.905234618423},
                                   {3.278126713798, -3.328923386476, 0.989127286973},
                                   {3.505298394150, -5.137358782410, 1.968325560615},
                                   {2.815058591845, -3.685181239622, 1.417196497642},
                                   {2.245503932403, -2.443826979899, 0.963091710461},
                                   {2.256537145403, -2.166840097229, 0.929501253245}};

inline double CascadeScalar(double s) {
  for (const double(&f)[3] : kCascade) s = f[0] * s + f[1] * s * s * s + f[2] * std::pow(s, 5);
  return s;
}

inline Matrix CascadeOracle(
    Matrix x, int64_t rows, int64_t cols,
    double (*stored)(double) = [](double value) { return value; }, double margin = 1.05) {
  if (rows > cols) {
    return Transposed(CascadeOracle(Transposed(x, rows, cols), cols, rows, stored, margin), cols,
                      rows);
  }
  const auto store = [stored](Matrix m) {
    for (double& value : m) value = stored(value);
    return m;
  };
  Matrix a = store(Product(x, Transposed(x, rows, cols), rows, cols, rows));
  double trace = 0;
  for (int64_t i = 0; i < rows; ++i) trace += a[i * (rows + 1)];
  const double divisor = margin * std::sqrt(trace) + 1e-6;
  for (double& value : x) value = stored(value / divisor);
  for (double& value : a) value = stored(value / divisor / divisor);
  for (int k = 0; k < 6; ++k) {
    const double(&f)[3] = kCascade[k];
    if (k > 0) a = store(Product(x, Transposed(x, rows, cols), rows, cols, rows));
    Matrix b = Product(a, a, rows, rows, rows);
    for (size_t j = 0; j < b.size(); ++j) b[j] = stored(f[1] * a[j] + f[2] * b[j]);
    const Matrix bx = Product(b, x, rows, rows, cols);
    for (size_t j = 0; j < x.size(); ++j) x[j] = stored(f[0] * x[j] + bx[j]);
  }
  return x;
}

inline double NewtonSchulzScalar(double s) { return QuinticScalar(kNewtonSchulzRule, s); }
inline Matrix NewtonSchulzOracle(Matrix x, int64_t rows, int64_t cols) {
  return QuinticOracle(kNewtonSchulzRule, std::move(x), rows, cols);
}

// NorMuon's normalisation of one matrix, one second moment per column: *w of `cols` values.
inline Matrix SecondMomentOracle(Matrix o, int64_t rows, int64_t cols, double beta2, Matrix* w) {
  const double norm = FrobeniusNorm(o);
  for (int64_t j = 0; j < cols; ++j) {
    double mean = 0;
    for (int64_t i = 0; i < rows; ++i) mean += o[i * cols + j] * o[i * cols + j] / rows;
    (*w)[j] += (1 - beta2) * (mean - (*w)[j]);
    for (int64_t i = 0; i < rows; ++i) o[i * cols + j] /= std::sqrt(std::max((*w)[j], 1e-10));
  }
  const double ratio = norm / std::max(FrobeniusNorm(o), 1e-10);
  for (double& value : o) value *= ratio;
  return o;
}

// The same with one second moment per row.
inline Matrix SecondMomentPerRowOracle(const Matrix& o, int64_t rows, int64_t cols, double beta2,
                                       Matrix* w) {
  return Transposed(SecondMomentOracle(Transposed(o, rows, cols), cols, rows, beta2, w), cols,
                    rows);
}

// Singular values by one-sided Jacobi rotations of the rows, ascending; rows <= cols.
inline std::vector<double> SingularValues(Matrix x, int64_t rows, int64_t cols) {
  for (int sweep = 0; sweep < 40; ++sweep) {
    for (int64_t p = 0; p < rows; ++p) {
      for (int64_t q = p + 1; q < rows; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (int64_t j = 0; j < cols; ++j) {
          pp += x[p * cols + j] * x[p * cols + j];
          qq += x[q * cols + j] * x[q * cols + j];
          pq += x[p * cols + j] * x[q * cols + j];
        }
        if (std::fabs(pq) <= 1e-30) continue;
        const double zeta = (qq - pp) / (2 * pq);
        const double t = (zeta >= 0 ? 1.0 : -1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (int64_t j = 0; j < cols; ++j) {
          const double xp = x[p * cols + j], xq = x[q * cols + j];
          x[p * cols + j] = c * xp - s * xq;
          x[q * cols + j] = s * xp + c * xq;
        }
      }
    }
  }
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i) {
    values.push_back(FrobeniusNorm(Matrix(x.begin() + i * cols, x.begin() + (i + 1) * cols)));
  }
  std::sort(values.begin(), values.end());
  return values;
}

// One element, all in float64, t = 1, 2, ...
struct AdamOracle {
  double lr, beta1, beta2, eps;
  double m = 0, v = 0;
  int t = 0;

  double Step(double p, double g) {
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double correction = std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    return p - lr * correction * m / (std::sqrt(v) + eps);
  }
  // With decay only where the update makes the weight smaller.
  double CautiousStep(double p, double g, double decay) {
    const double u = p - Step(p, g);
    return p - (u * p > 0 ? u + p * decay : u);
  }
};

}  // namespace optim

#endif  // OPTIM_ORACLE_H_
