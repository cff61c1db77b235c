#include "tools/sample/text_model.h"

namespace tools {

ModelState StateAt(const model::GptConfig& config, const sched::Schedules& schedules, int64_t step,
                   const std::vector<kernels::Parameter>& parameters) {
  return {.config = config,
          .parameters = &parameters,
          .windows = sched::WindowsAt(schedules.window, schedules.run, step),
          .rotary = sched::RotaryAt(schedules.rotary, schedules.window, schedules.run, step)};
}

}  // namespace tools
