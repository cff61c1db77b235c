#include "comm/rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "comm/address_file.h"
#include "comm/socket.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using Clock = std::chrono::steady_clock;

// Kinds of messages.
constexpr char kHello = 'H';    // "nanospeed-1 token rank size", to rank 0
constexpr char kWelcome = 'W';  // rank 0 knows the caller
constexpr char kStart = 'S';    // all are there
constexpr char kText = 'T';     // of AllGather
constexpr char kGiveUp = 'A';   // the reason
constexpr char kBye = 'B';
constexpr char kLastWords = 'L';  // of one rank, to rank 0
constexpr char kAllSaid = 'C';    // from rank 0, one for each rank: its LastWords::Kind, its text

constexpr char kProtocol[] = "nanospeed-1";
constexpr char kNoToken[] = "-";  // where the environment names the address
// A caller that is none of ours says nothing; the next one waits so long.
constexpr std::chrono::seconds kHelloPatience(2);
constexpr std::chrono::seconds kWelcomePatience(10);
constexpr std::chrono::milliseconds kRetryEvery(50);
constexpr Deadline kNow;  // long past: take what is there

Deadline After(absl::Duration timeout) {
  return Clock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
}

class Star : public Rendezvous {
 public:
  Star(int rank, int size, std::vector<Link> links)
      : rank_(rank), links_(std::move(links)), texts_(size), said_(size) {}

  ~Star() override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) SendToAll({.kind = kBye, .text = ""});
  }

  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& mine,
                                                     absl::Duration timeout) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ABSL_RETURN_IF_ERROR(failure_);
    const Deadline deadline = After(timeout);
    if (rank_ == 0) {
      texts_[0] = mine;
      for (size_t peer = 1; peer < links_.size(); ++peer) {
        ABSL_ASSIGN_OR_RETURN(texts_[peer], WaitForText(peer, deadline));
      }
      for (const std::string& text : texts_) SendToAll({.kind = kText, .text = text});
    } else {
      links_[0].Send({.kind = kText, .text = mine});
      for (std::string& text : texts_) {
        ABSL_ASSIGN_OR_RETURN(text, WaitForText(0, deadline));
      }
    }
    return texts_;
  }

  absl::Status Poll() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t peer = 0; peer < links_.size() && failure_.ok(); ++peer) {
      while (failure_.ok() && links_[peer].is_open()) {
        absl::StatusOr<std::optional<Message>> message = links_[peer].Receive(kNow);
        if (message.ok() && !message->has_value()) break;
        Note(peer, std::move(message));
      }
    }
    return failure_;
  }

  void GiveUp(const absl::Status& reason) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    Fail(absl::StrCat("rank ", rank_, " gave up: ", reason.ToString()));
  }

  std::vector<LastWords> SayLastWords(const std::string& mine, absl::Duration patience) override {
    std::lock_guard<std::mutex> lock(mutex_);
    CHECK(!failure_.ok()) << "last words while all is well";
    said_[rank_] = {.kind = LastWords::kHere, .text = mine};
    if (rank_ == 0) {
      const Deadline deadline = After(patience);
      for (size_t peer = 1; peer < links_.size(); ++peer) HearLastWords(peer, deadline);
      for (size_t peer = 1; peer < links_.size(); ++peer) {
        if (said_[peer].kind == LastWords::kHere) TellAllSaid(links_[peer]);
      }
    } else {
      links_[0].Send({.kind = kLastWords, .text = mine});
      if (patience > absl::ZeroDuration()) HearAllSaid(After(2 * patience));
    }
    return said_;
  }

 private:
  // Rank 0: takes the last words of `peer`.
  void HearLastWords(size_t peer, Deadline deadline) {
    LastWords& said = said_[peer];
    while (said.kind == LastWords::kUnknown && links_[peer].is_open()) {
      const absl::StatusOr<std::optional<Message>> message = links_[peer].Receive(deadline);
      if (!message.ok()) {
        said.kind = LastWords::kLost;
      } else if (!message->has_value()) {
        said.kind = LastWords::kSilent;
      } else if ((*message)->kind == kLastWords) {
        said = {.kind = LastWords::kHere, .text = (*message)->text};
      } else if ((*message)->kind == kBye) {
        said.kind = LastWords::kLeft;
      }  // its own reason to give up, or what it sent before
    }
  }

  void TellAllSaid(Link& link) {
    for (const LastWords& said : said_) {
      link.Send({.kind = kAllSaid, .text = absl::StrCat(static_cast<int>(said.kind), said.text)});
    }
  }

  // The others: takes what rank 0 has collected.
  void HearAllSaid(Deadline deadline) {
    std::vector<LastWords> all;
    while (all.size() < said_.size()) {
      const absl::StatusOr<std::optional<Message>> message = links_[0].Receive(deadline);
      if (!message.ok() || !message->has_value()) {
        const bool left = said_[0].kind == LastWords::kLeft;
        said_[0].kind = left            ? LastWords::kLeft
                        : !message.ok() ? LastWords::kLost
                                        : LastWords::kSilent;
        return;
      }
      if ((*message)->kind == kBye) said_[0].kind = LastWords::kLeft;
      if ((*message)->kind != kAllSaid || (*message)->text.empty()) continue;
      const int kind = (*message)->text[0] - '0';
      all.push_back(
          {.kind = static_cast<LastWords::Kind>(kind), .text = (*message)->text.substr(1)});
    }
    said_ = std::move(all);
  }

  absl::StatusOr<std::string> WaitForText(size_t peer, Deadline deadline) {
    absl::StatusOr<std::optional<Message>> message = links_[peer].Receive(deadline);
    if (message.ok() && !message->has_value()) {
      failure_ = absl::DeadlineExceededError(
          absl::StrCat("rank ", rank_, " waited in vain for rank ", peer, " during start-up"));
      SendToAll({.kind = kGiveUp, .text = std::string(failure_.message())});
      return failure_;
    }
    if (message.ok() && (*message)->kind == kText) return (*message)->text;
    Note(peer, std::move(message));
    if (failure_.ok()) Fail(absl::StrCat("rank ", peer, " left during start-up"));
    return failure_;
  }

  // What a message other than a text means, or the end of the connection.
  void Note(size_t peer, absl::StatusOr<std::optional<Message>> message) {
    if (!message.ok()) {
      said_[peer].kind = LastWords::kLost;
      Fail(absl::StrCat("rank ", peer, " is gone"));
    } else if ((*message)->kind == kBye) {
      said_[peer].kind = LastWords::kLeft;
      links_[peer].Close();
    } else if ((*message)->kind == kGiveUp) {
      Fail((*message)->text);
    } else {
      Fail(absl::StrCat("rank ", peer, " is out of step"));
    }
  }

  // Rank 0 passes on what it hears; the others have nobody else to tell.
  void Fail(const std::string& what) {
    failure_ = absl::UnavailableError(what);
    SendToAll({.kind = kGiveUp, .text = what});
  }

  // A rank that cannot be reached is found by Poll() and AllGather().
  void SendToAll(const Message& message) {
    for (Link& link : links_) link.Send(message);
  }

  const int rank_;
  std::mutex mutex_;
  std::vector<Link> links_;  // rank 0: by rank, its own closed; others: to rank 0 alone
  std::vector<std::string> texts_;
  std::vector<LastWords> said_;  // rank 0: of all; others: of rank 0 and itself
  absl::Status failure_;
};

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
  ABSL_RETURN_IF_ERROR(host.Gather(listener, timeout));
  return std::make_unique<Star>(0, where.size, host.TakeLinks());
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
  return std::make_unique<Star>(where.rank, where.size, std::move(links));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Meet(const ProcessRank& where,
                                                             absl::Duration timeout) {
  ABSL_RETURN_IF_ERROR(NeedAddress(where));
  return where.rank == 0 ? MeetAsHost(where, timeout) : MeetAsGuest(where, timeout);
}

}  // namespace comm
