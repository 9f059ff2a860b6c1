// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/generator_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/core/random.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most = std::int64_t{1} << 40;
constexpr std::uint64_t block = 1024;  // positions of which a fixed number is made

}  // namespace

GeneratorConfig read_generator(const JobTable& table) {
  GeneratorConfig out;
  out.on_policy = table.number("on_policy", out.on_policy, {.min = 0, .max = 1},
                               {"the share of the samples that the generator makes; the others are read"});
  out.from_step =
      table.integer("from_step", out.from_step, {.min = 1, .max = most}, {"the first step with made samples", "steps"});
  out.staleness =
      table.integer("staleness", out.staleness, {.min = 0, .max = 16},
                    {"the age in steps of the weights that make a step's samples; 0: strictly on-policy, so "
                     "that nothing is trained meanwhile",
                     "steps"});
  out.max_tokens = table.integer("max_tokens", out.max_tokens, {.min = 1, .max = 1 << 20},
                                 {"tokens of a completion at most; prompt and completion fit data.sequence", "tokens"});
  out.prompt_tokens = table.integer("prompt_tokens", out.prompt_tokens, {.min = 0, .max = 1 << 20},
                                    {"the first tokens of a sample are its prompt; 0: all tokens before its last "
                                     "learned answer",
                                     "tokens"});
  out.samples_per_prompt = table.integer("samples_per_prompt", out.samples_per_prompt, {.min = 1, .max = 1 << 20},
                                         {"samples that are made of a prompt, one after the other", "samples"});
  out.temperature = table.number("temperature", out.temperature, {.min = 0, .max = 1e3},
                                 {"divides the logits of the draws; 0: the likeliest tokens"});
  out.top_k =
      table.integer("top_k", out.top_k, {.min = 0, .max = 1 << 30}, {"only the k likeliest tokens are drawn; 0: all"});
  out.top_p = table.number("top_p", out.top_p, {.min = 0, .max = 1, .min_open = true},
                           {"only the fewest tokens whose probabilities reach p are drawn"});
  out.stop = table.texts("stop", {},
                         {"texts of tokens that end a completion, each a single token; default: the end "
                          "tokens of the student's folder, else of the tokenizer"});
  out.slots = table.integer("slots", out.slots, {.min = 1, .max = 1024},
                            {"sequences that a replica continues at a time; results do not depend on it"});
  out.record = table.flag("record", out.record,
                          {"keep all samples in the run's folder (record/rollouts), to be read back by `rollouts`"});
  out.rollouts = table.text("rollouts", out.rollouts,
                            {"the folder of a run with `record = true`, whose samples are read in place of generation; "
                             "--rollouts sets it"});
  out.show = table.integer("show", out.show, {.min = 0, .max = 1024},
                           {"samples whose text is kept at each validation (record/rollouts.jsonl)", "samples"});
  return out;
}

bool is_made_at(std::uint64_t position, double on_policy, std::uint64_t seed) {
  const auto made = static_cast<std::uint64_t>(std::llround(static_cast<double>(block) * on_policy));
  if (made == 0 || made >= block) return made > 0;
  std::array<std::uint16_t, block> order{};
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  Random random(seed, position / block);
  for (std::size_t at = block; at > 1; --at) std::swap(order[at - 1], order[random.below(at)]);
  return order[position % block] < made;
}

std::int64_t prompt_length(std::span<const std::int32_t> targets, std::int64_t prompt_tokens) {
  if (prompt_tokens > 0) return std::min(prompt_tokens, std::ssize(targets));
  const auto learned = [](std::int32_t target) { return target >= 0; };
  const auto last = std::find_if(targets.rbegin(), targets.rend(), learned);
  if (last == targets.rend()) return std::ssize(targets);
  const auto before = std::find_if_not(last, targets.rend(), learned);
  return targets.rend() - before + 1;  // the row of the first learned target is the prompt's last
}

}  // namespace maestro
