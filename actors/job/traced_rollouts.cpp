// SPDX-License-Identifier: Apache-2.0
#include "actors/job/traced_rollouts.hpp"

#include "actors/job/prompt_drawer.hpp"

namespace maestro {

std::vector<TracedUnit> with_rollouts(const ResolvedJob& plan, std::vector<TracedUnit> units,
                                      const std::string& trace) {
  const auto seed = static_cast<std::uint64_t>(plan.train.seed);
  const PromptDrawer prompts(plan.corpus, Sampler(seed, plan.corpus->sources()), plan.rollouts.value().config, seed,
                             {plan.train.global_batch});
  for (TracedUnit& unit : units) {
    if (unit.pass != Pass::train) continue;
    const std::vector<DrawnSample> drawn = prompts.draw(unit.step);
    const auto fail = [&] {
      throw JobError(trace + ": the samples of step " + std::to_string(unit.step.value()) +
                     " do not continue the prompts that the job has for it; the data, or the batch before the run was "
                     "resumed, were others");
    };
    if (drawn.size() != unit.samples.size()) fail();
    RehearsedRollout rollout;
    for (std::size_t at = 0; at < drawn.size(); ++at) {
      if (!drawn[at].order) continue;
      const PromptOrder& order = *drawn[at].order;
      const std::int64_t prompt = std::ssize(order.tokens);
      const std::int64_t completion = unit.samples[at].tokens + 1 - prompt;
      if (completion < 1 || completion > order.most_tokens) fail();
      rollout.version = order.version;
      rollout.samples.push_back({prompt, completion});
    }
    if (!rollout.samples.empty()) unit.rollout = std::move(rollout);
  }
  return units;
}

}  // namespace maestro
