// Signals that ask a run to stop, and those that must not end one.
//
// SIGINT, SIGTERM and SIGHUP ask the trainer to stop after the step it is in. After the first of
// them, SIGINT and SIGTERM end the process at once, as without a handler; SIGHUP does not, since a
// terminal that is closed sends it twice. A process that began with SIGHUP ignored, as under
// nohup, goes on ignoring it.
//
// SIGPIPE and SIGXFSZ are ignored: a reader that leaves (| head) or a limit on the size of files
// makes writing fail, which is reported, and does not kill the run.
#ifndef TOOLS_TRAINER_INTERRUPT_H_
#define TOOLS_TRAINER_INTERRUPT_H_

namespace tools {

// Once in a process, before it has other threads: they inherit what is blocked here.
void InstallInterruptHandlers();
bool Interrupted();

}  // namespace tools

#endif  // TOOLS_TRAINER_INTERRUPT_H_
