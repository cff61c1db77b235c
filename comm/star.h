// The processes of a job once they are connected: rank 0 in the middle. See rendezvous.h.
#ifndef COMM_STAR_H_
#define COMM_STAR_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"

namespace comm {

// Kinds of messages.
inline constexpr char kHello = 'H';    // "nanospeed-1 token rank size", to rank 0
inline constexpr char kWelcome = 'W';  // rank 0 knows the caller
inline constexpr char kStart = 'S';    // all are there
inline constexpr char kText = 'T';     // of AllGather
inline constexpr char kGiveUp = 'A';   // the reason
inline constexpr char kBye = 'B';
inline constexpr char kLastWords = 'L';  // of one rank, to rank 0
// From rank 0, one for each rank: its LastWords::Kind as a digit, its text.
inline constexpr char kAllSaid = 'C';

inline constexpr Deadline kNow;  // long past: take what is there

inline Deadline After(absl::Duration timeout) {
  return std::chrono::steady_clock::now() +
         absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
}

// `links` of rank 0: by rank, its own closed; of the others: to rank 0 alone.
std::unique_ptr<Rendezvous> MakeStar(int rank, int size, std::vector<Link> links);

}  // namespace comm

#endif  // COMM_STAR_H_
