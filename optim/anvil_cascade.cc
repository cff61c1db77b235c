#include "optim/anvil_cascade.h"

namespace optim {

AnvilCascade::AnvilCascade()
    : QuinticOrthogonalizer({.name = "anvil_cascade",
                             .norm_scale = 1.05f,
                             .norm_eps = 1e-6f,
                             .iterations = {{3.923798038567f, -6.095026865488f, 3.905234618423f},
                                            {3.278126713798f, -3.328923386476f, 0.989127286973f},
                                            {3.505298394150f, -5.137358782410f, 1.968325560615f},
                                            {2.815058591845f, -3.685181239622f, 1.417196497642f},
                                            {2.245503932403f, -2.443826979899f, 0.963091710461f},
                                            {2.256537145403f, -2.166840097229f, 0.929501253245f}},
                             .norm_from_gram = true,
                             .lone_norm_scale = 1.1f}) {}

}  // namespace optim
