// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/mixed_layouts.hpp"

#include "runtime/graph/replica_mix.hpp"

namespace maestro {

std::vector<std::vector<std::int64_t>> possible_mixes(std::int64_t parts, const std::set<std::int64_t>& contexts) {
  std::vector<std::vector<std::int64_t>> mixes;
  for (const std::int64_t wide : contexts) {
    for (const std::int64_t narrow : contexts) {
      for (std::int64_t count = 1; narrow < wide && count * wide < parts; count *= 2) {
        const std::int64_t rest = parts - count * wide;
        if (rest % narrow != 0) continue;
        std::vector<std::int64_t>& mix = mixes.emplace_back(static_cast<std::size_t>(count), wide);
        mix.insert(mix.end(), static_cast<std::size_t>(rest / narrow), narrow);
      }
    }
  }
  return mixes;
}

std::vector<std::string> with_mix(std::vector<std::string> settings, const std::string& section,
                                  const std::vector<std::int64_t>& contexts) {
  std::erase_if(settings, [&](const std::string& setting) {
    return setting.starts_with(section + ".replicas=") || setting.starts_with(section + ".context=");
  });
  settings.push_back(section + ".replicas=" + text_of_mix(contexts));
  return settings;
}

}  // namespace maestro
