// What the build flags --//optim:matrix_optimizer, orthogonalizer and grouping chose.
#ifndef OPTIM_BUILD_CHOICES_H_
#define OPTIM_BUILD_CHOICES_H_

#include <string>

#include "optim/param_table.h"

namespace optim {

// The recipe's config, with what the build flags override. A flag left at "recipe" overrides
// nothing. The base rates of matrices (the rows of every rule but Adam's, also where adamw takes
// its place) are multiplied by matrix_lr_mul.
OptimizerConfig WithBuildChoices(OptimizerConfig config, double matrix_lr_mul);

// "matrix_optimizer=recipe orthogonalizer=recipe grouping=by_shape", for --version and logs.
std::string BuildChoices();

}  // namespace optim

#endif  // OPTIM_BUILD_CHOICES_H_
