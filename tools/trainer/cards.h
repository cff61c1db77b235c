// Graphics cards that a plan can be made for without one.
#ifndef TOOLS_TRAINER_CARDS_H_
#define TOOLS_TRAINER_CARDS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cuda/card_support.h"
#include "kernels/queue.h"
#include "model/config.h"

namespace tools {

struct Card {
  std::string name;  // "h100-80gb", or what the driver calls the card that is here
  std::string size;  // "80 GB", as it is sold; empty for the card that is here
  double memory_gib = 0;
  kernels::ComputeCapability capability;
};

// The cards that --card names, the smallest memory first.
absl::Span<const Card> NamedCards();

// InvalidArgument: there is no such name; the message lists them.
absl::StatusOr<Card> FindCard(absl::string_view name);

// "24 GB": the size of the smallest named card whose memory holds what a run plans beside what
// driver, libraries and recorded graphs take. "none" if none does.
std::string SmallestCard(double planned_gib);

// GiB that a card has left, or negative lacks, beside the plan and what the driver takes.
double SpareGib(const Card& card, double planned_gib);

// FailedPrecondition: the card lacks something beside memory that the model's training needs.
absl::Status CheckCard(const model::GptConfig& model, const Card& card);

// A queue of a card that need not exist, for planning: it knows how much memory the CUDA backend's
// ops would ask for there. Every other call CHECKs.
std::unique_ptr<kernels::Queue> MakePlanningQueue(const Card& card);

}  // namespace tools

#endif  // TOOLS_TRAINER_CARDS_H_
