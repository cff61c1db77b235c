#include "comm/rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "comm/address_file.h"
#include "comm/socket.h"
#include "comm/star.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kProtocol[] = "nanospeed-1";
constexpr char kNoToken[] = "-";  // where the environment names the address
// A caller that is none of ours says nothing; the next one waits so long.
constexpr std::chrono::seconds kHelloPatience(2);
constexpr std::chrono::seconds kWelcomePatience(10);
constexpr std::chrono::milliseconds kRetryEvery(50);

// "host:port"; the host may be an IPv6 address in brackets.
absl::StatusOr<std::pair<std::string, int>> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat(address, ": not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return std::make_pair(host, port);
}

// Removes rank 0's file once it has served.
class PublishedAddress {
 public:
  ~PublishedAddress() {
    if (!path_.empty()) std::remove(path_.c_str());
  }
  absl::Status Publish(const std::string& path, const LocalAddress& address) {
    ABSL_RETURN_IF_ERROR(WriteAddress(path, address));
    path_ = path;
    return absl::OkStatus();
  }

 private:
  std::string path_;
};

absl::Status NeedAddress(const ProcessRank& where) {
  if (!where.rendezvous.empty() || where.one_host()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", where.rank, " of ", where.size, " (", where.launcher, "): ",
                   where.local_size > 0
                       ? absl::StrCat("only ", where.local_size, " of the ranks run on this host")
                       : std::string("the ranks may run on several hosts"),
                   "; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port of it, "
                   "on all ranks"));
}

// Rank 0's side of Meet.
class Host {
 public:
  Host(const ProcessRank& where, std::string token)
      : size_(where.size), token_(std::move(token)), links_(where.size) {}

  absl::Status Gather(const Socket& listener, absl::Duration timeout) {
    const absl::Status status = AcceptAll(listener, After(timeout), timeout);
    const Message message = {.kind = status.ok() ? kStart : kGiveUp,
                             .text = std::string(status.message())};
    for (Link& link : links_) link.Send(message);
    return status;
  }
  std::vector<Link> TakeLinks() { return std::move(links_); }

 private:
  absl::Status AcceptAll(const Socket& listener, Deadline deadline, absl::Duration timeout) {
    for (int missing = size_ - 1; missing > 0;) {
      std::optional<Link> link = Accept(listener, deadline);
      if (!link.has_value() && Clock::now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("timeout after ", absl::FormatDuration(timeout), ": rank 0 of ", size_,
                         " was not called by rank ", absl::StrJoin(Missing(), ", "),
                         "; were all of them started?"));
      }
      if (!link.has_value()) continue;
      ABSL_ASSIGN_OR_RETURN(const bool is_new, Greet(*std::move(link), deadline));
      if (is_new) --missing;
    }
    return absl::OkStatus();
  }

  // Whether the caller is a rank that was not there yet. Strangers are hung up on.
  absl::StatusOr<bool> Greet(Link link, Deadline deadline) {
    const absl::StatusOr<std::optional<Message>> hello =
        link.Receive(std::min(deadline, Clock::now() + kHelloPatience));
    if (!hello.ok() || !hello->has_value() || (*hello)->kind != kHello) return false;
    const std::vector<std::string> words = absl::StrSplit((*hello)->text, ' ');
    int rank = 0, size = 0;
    if (words.size() != 4 || words[0] != kProtocol || words[1] != token_ ||
        !absl::SimpleAtoi(words[2], &rank) || !absl::SimpleAtoi(words[3], &size)) {
      return false;
    }
    absl::Status status;
    if (size != size_) {
      status = absl::InvalidArgumentError(absl::StrCat("rank 0 was started as one of ", size_,
                                                       " ranks, rank ", rank, " as one of ", size));
    } else if (rank < 1 || rank >= size_) {
      status = absl::InvalidArgumentError(
          absl::StrCat("two processes were started as rank ", rank, " of ", size_));
    }
    // A rank whose first call got no answer in time has hung up and calls again.
    const bool is_new = status.ok() && !links_[rank].is_open();
    if (status.ok() && !is_new && links_[rank].Receive(kNow).ok()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("two processes were started as rank ", rank, " of ", size_));
    }
    if (!status.ok()) {
      link.Send({.kind = kGiveUp, .text = std::string(status.message())});
      return status;
    }
    link.Send({.kind = kWelcome, .text = ""});
    links_[rank] = std::move(link);
    return is_new;
  }

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int rank = 1; rank < size_; ++rank) {
      if (!links_[rank].is_open()) missing.push_back(rank);
    }
    return missing;
  }

  const int size_;
  const std::string token_;
  std::vector<Link> links_;
};

absl::StatusOr<std::unique_ptr<Rendezvous>> MeetAsHost(const ProcessRank& where,
                                                       absl::Duration timeout) {
  std::string token = kNoToken;
  Socket listener;
  PublishedAddress published;
  if (where.rendezvous.empty()) {
    token = RandomToken();
    ABSL_ASSIGN_OR_RETURN(const std::string path, AddressPath(where.job));
    ABSL_ASSIGN_OR_RETURN(listener, Listen("127.0.0.1", 0));
    ABSL_RETURN_IF_ERROR(published.Publish(path, {.port = PortOf(listener), .token = token}));
  } else {
    ABSL_ASSIGN_OR_RETURN(const auto address, SplitAddress(where.rendezvous));
    ABSL_ASSIGN_OR_RETURN(listener, Listen("", address.second));
  }
  Host host(where, token);
  const absl::Status gathered = host.Gather(listener, timeout);
  if (absl::IsDeadlineExceeded(gathered) && !where.launcher.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(gathered.message(), " (", HowToBeOneRank(where), ")"));
  }
  ABSL_RETURN_IF_ERROR(gathered);
  return MakeStar(0, where.size, host.TakeLinks());
}

// One attempt of another rank to reach rank 0: connected, and known there.
absl::StatusOr<Link> Call(const ProcessRank& where, Deadline deadline) {
  std::string host = "127.0.0.1", token = kNoToken;
  int port = 0;
  if (where.rendezvous.empty()) {
    ABSL_ASSIGN_OR_RETURN(const std::string path, AddressPath(where.job));
    const absl::StatusOr<LocalAddress> address = ReadAddress(path);
    if (!address.ok()) return absl::UnavailableError(address.status().message());
    port = address->port;
    token = address->token;
  } else {
    ABSL_ASSIGN_OR_RETURN(const auto address, SplitAddress(where.rendezvous));
    host = address.first;
    port = address.second;
  }
  ABSL_ASSIGN_OR_RETURN(Link link, Connect(host, port));
  link.Send({.kind = kHello,
             .text = absl::StrCat(kProtocol, " ", token, " ", where.rank, " ", where.size)});
  ABSL_ASSIGN_OR_RETURN(const std::optional<Message> answer,
                        link.Receive(std::min(deadline, Clock::now() + kWelcomePatience)));
  if (answer.has_value() && answer->kind == kWelcome) return link;
  if (answer.has_value() && answer->kind == kGiveUp) {
    return absl::InvalidArgumentError(answer->text);
  }
  return absl::UnavailableError(absl::StrCat(host, ":", port, ": no answer of ours"));
}

absl::StatusOr<std::unique_ptr<Rendezvous>> MeetAsGuest(const ProcessRank& where,
                                                        absl::Duration timeout) {
  const Deadline deadline = After(timeout);
  absl::StatusOr<Link> link = Call(where, deadline);
  while (absl::IsUnavailable(link.status()) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kRetryEvery);  // rank 0 may start later
    link = Call(where, deadline);
  }
  if (absl::IsUnavailable(link.status())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "timeout after ", absl::FormatDuration(timeout), ": rank ", where.rank, " of ", where.size,
        " did not reach rank 0: ", link.status().message(), "; was it started?"));
  }
  ABSL_RETURN_IF_ERROR(link.status());
  const absl::StatusOr<std::optional<Message>> start = link->Receive(deadline);
  if (!start.ok()) return absl::UnavailableError("rank 0 is gone");
  if (!start->has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("timeout after ", absl::FormatDuration(timeout), ": rank ", where.rank, " of ",
                     where.size, " reached rank 0, but other ranks did not; were all started?"));
  }
  if ((*start)->kind != kStart) return absl::UnavailableError((*start)->text);
  std::vector<Link> links;
  links.push_back(*std::move(link));
  return MakeStar(where.rank, where.size, std::move(links));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Meet(const ProcessRank& where,
                                                             absl::Duration timeout) {
  ABSL_RETURN_IF_ERROR(NeedAddress(where));
  return where.rank == 0 ? MeetAsHost(where, timeout) : MeetAsGuest(where, timeout);
}

}  // namespace comm
