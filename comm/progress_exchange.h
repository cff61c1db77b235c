// Brings the progress of ranks that are processes together when their collectives have failed.
#ifndef COMM_PROGRESS_EXCHANGE_H_
#define COMM_PROGRESS_EXCHANGE_H_

#include <string>

#include "absl/time/time.h"
#include "comm/flight_record.h"
#include "comm/rendezvous.h"

namespace comm {

// How long rank 0 waits for the others; twice of it for them, and what ends a process that is stuck
// (watchdog.h) still come within the 10 s that a failed run may take to end.
constexpr absl::Duration kReportPatience = absl::Seconds(3);

// ReportText() of all ranks, as far as they answer: after rendezvous.Poll() failed or GiveUp() was
// called, once. Every rank calls it; one that knows its own reason and wants no report (it was
// Abort()ed) may pass zero patience, but for rank 0, which collects for the others. If rank 0 is
// gone, the report is of this rank alone.
std::string CollectReport(Rendezvous& rendezvous, const FlightRecord& record,
                          absl::Duration patience = kReportPatience);

}  // namespace comm

#endif  // COMM_PROGRESS_EXCHANGE_H_
