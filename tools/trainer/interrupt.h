// SIGINT and SIGTERM ask the trainer to stop after the step it is in. A second one ends the
// process at once, as without a handler.
#ifndef TOOLS_TRAINER_INTERRUPT_H_
#define TOOLS_TRAINER_INTERRUPT_H_

namespace tools {

void InstallInterruptHandlers();
bool Interrupted();

}  // namespace tools

#endif  // TOOLS_TRAINER_INTERRUPT_H_
