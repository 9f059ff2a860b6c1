// SPDX-License-Identifier: Apache-2.0
// Fuzz target for files of `maestro plan`: profiles, which must read back equal, and cluster descriptions.
#include <cmath>

#include "fuzz_target.hpp"
#include "runtime/rehearsal/described_cluster.hpp"
#include "runtime/rehearsal/profile_file.hpp"

namespace maestro::fuzz {
namespace {

void read_prices(std::string_view text) {
  const Result<MachinePrices> prices = parse_profile(text, "profile.json");
  if (!accepted(prices)) return;
  const Result<MachinePrices> again = parse_profile(profile_text(*prices), "profile.json");
  require(again.ok(), "a profile that was written is a profile", again.ok() ? "" : again.error().message);
  require(again->alone.measured().size() == prices->alone.measured().size(), "it has the same calls");
}

void check(const DescribedCluster& cluster) {
  require(cluster.devices() > 0 && !cluster.pools.empty(), "a cluster has devices");
  for (const DescribedPool& pool : cluster.pools) {
    PriceSources sources;
    const double ms = DescribedPrices(pool).ms({"linear", DType::bf16, {8, 8, 8}, 1024, 256}, sources);
    require(pool.memory_bytes > 0 && std::isfinite(ms) && ms >= 0, "a call has a price");
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string text(fuzz::text_of(data, size));
  fuzz::read_prices(text);
  fuzz::accepts([&] { fuzz::check(parse_cluster(text, "cluster.toml")); });
  return 0;
}
