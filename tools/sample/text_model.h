// A model as something that continues token sequences.
#ifndef TOOLS_SAMPLE_TEXT_MODEL_H_
#define TOOLS_SAMPLE_TEXT_MODEL_H_

#include <cstdint>
#include <vector>

#include "kernels/parameter.h"
#include "model/config.h"
#include "sched/rotary.h"
#include "sched/schedules.h"
#include "sched/window.h"

namespace tools {

// A model with the windows and rotary frequencies that it runs at. The parameters outlive it.
struct ModelState {
  model::GptConfig config;
  const std::vector<kernels::Parameter>* parameters = nullptr;
  sched::Windows windows;
  sched::Rotary rotary;
};

// As `step` of the schedules has them: what weights that have seen so many updates were trained to.
ModelState StateAt(const model::GptConfig& config, const sched::Schedules& schedules, int64_t step,
                   const std::vector<kernels::Parameter>& parameters);

// Sequences are one document from the slot's start; the bf16 head, as in validation.
class TextModel {
 public:
  virtual ~TextModel() = default;
  // The longest sequence.
  virtual int64_t context_tokens() const = 0;
  // The logits, soft cap applied, of the token that follows `tokens`, 1 to context_tokens() of
  // them; one of each class of the padded vocabulary.
  virtual std::vector<float> Logits(const std::vector<int32_t>& tokens) = 0;
  // Nats of tokens[from], tokens[from + 1], ..., each given all before it. 1 <= from < size <=
  // context_tokens() + 1: the last token is not read.
  virtual std::vector<float> Losses(const std::vector<int32_t>& tokens, int64_t from) = 0;
};

}  // namespace tools

#endif  // TOOLS_SAMPLE_TEXT_MODEL_H_
