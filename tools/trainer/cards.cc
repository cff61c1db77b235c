#include "tools/trainer/cards.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tools {
namespace {

// What the driver, the libraries and recorded graphs take on a card (docs/benchmarks.md).
constexpr double kBesidePlanGib = 1.25;

}  // namespace

absl::Span<const Card> NamedCards() {
  // Memory as the CUDA runtime tells it, rounded down; measured here on the H200 alone.
  static const auto& cards = *new std::vector<Card>{
      {"rtx3090-24gb", "24 GB", 23.5, {8, 6}},  {"rtx4090-24gb", "24 GB", 23.5, {8, 9}},
      {"rtx5090-32gb", "32 GB", 31.3, {12, 0}}, {"a100-40gb", "40 GB", 39.4, {8, 0}},
      {"l40s-48gb", "48 GB", 44.3, {8, 9}},     {"a100-80gb", "80 GB", 79.1, {8, 0}},
      {"h100-80gb", "80 GB", 79.1, {9, 0}},     {"h200-141gb", "141 GB", 139.8, {9, 0}},
  };
  return cards;
}

absl::StatusOr<Card> FindCard(absl::string_view name) {
  for (const Card& card : NamedCards()) {
    if (card.name == name) return card;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--card=", name, ": no such card; known are ",
      absl::StrJoin(NamedCards(), ", ",
                    [](std::string* out, const Card& card) { absl::StrAppend(out, card.name); })));
}

double SpareGib(const Card& card, double planned_gib) {
  return card.memory_gib - kBesidePlanGib - planned_gib;
}

std::string SmallestCard(double planned_gib) {
  for (const Card& card : NamedCards()) {
    if (SpareGib(card, planned_gib) >= 0) return card.size;
  }
  return "none";
}

absl::Status CheckCard(const model::GptConfig& model, const Card& card) {
  return kernels::CheckCardRuns({.fp8_head = model.fp8_head, .head_dim = model.head_dim}, card.name,
                                card.capability);
}

}  // namespace tools
