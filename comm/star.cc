#include "comm/star.h"

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

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

}  // namespace

std::unique_ptr<Rendezvous> MakeStar(int rank, int size, std::vector<Link> links) {
  return std::make_unique<Star>(rank, size, std::move(links));
}

}  // namespace comm
