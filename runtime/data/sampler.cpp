// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sampler.hpp"

#include <algorithm>
#include <bit>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

// Networks with 1 or 2 bits per half reach few permutations; with three they reach every order of a small corpus.
constexpr unsigned least_half_bits = 3;
constexpr std::uint64_t rounds = 8;
constexpr std::uint64_t block = 1024;  // positions
constexpr unsigned block_half_bits = 5;

std::uint64_t permuted(std::uint64_t value, std::uint64_t key, unsigned half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mixed = left ^ (mix64(key + round * golden_gamma, right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(std::uint64_t seed, const std::vector<SampleSource>& sources) : seed_(seed) {
  for (const SampleSource& source : sources) {
    if (source.samples == 0) throw JobError("a corpus without samples cannot be sampled");
    const auto bits = static_cast<unsigned>(std::bit_width(source.samples - 1));
    // The first source uses the sampler's seed, so that its order is the same with and without other sources.
    const std::uint64_t own = sources_.empty() ? seed : mix64(seed ^ golden_gamma, sources_.size());
    sources_.push_back({own, source.samples, samples_, block, std::max(least_half_bits, (bits + 1) / 2)});
    samples_ += source.samples;
  }
  if (sources_.empty()) throw JobError("a corpus without samples cannot be sampled");
  if (sources_.size() > 1) share_out(sources);
}

std::vector<std::uint64_t> shares_of(const std::vector<SampleSource>& sources) {
  // Scales weights, as the sum of weights near the largest number would be infinite.
  const auto weight_of = [](const SampleSource& source) { return source.weight; };
  const double unit = std::max(1.0, std::ranges::max(sources, {}, weight_of).weight / 1e200);
  double sum = 0;
  for (const SampleSource& source : sources) sum += source.weight / unit;
  std::vector<std::uint64_t> shares;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::uint64_t left = block;
  for (std::size_t at = 0; at < sources.size(); ++at) {
    const double share = static_cast<double>(block) * (sources[at].weight / unit) / sum;
    shares.push_back(static_cast<std::uint64_t>(share));
    left -= shares[at];
    remainders.emplace_back(static_cast<double>(shares[at]) - share, at);
  }
  std::ranges::stable_sort(remainders, {}, [](const auto& each) { return each.first; });
  for (std::size_t at = 0; at < left; ++at) ++shares[remainders[at].second];
  return shares;
}

void Sampler::share_out(const std::vector<SampleSource>& sources) {
  const std::vector<std::uint64_t> shares = shares_of(sources);
  for (std::uint32_t at = 0; at < sources_.size(); ++at) {
    sources_[at].share = shares[at];
    if (sources_[at].share == 0) {
      throw JobError("the weight of source " + std::to_string(at + 1) + " is below 1 / " + std::to_string(block) +
                     " of all weights");
    }
    for (std::uint32_t number = 0; number < sources_[at].share; ++number) places_.push_back({at, number});
  }
}

std::uint64_t Sampler::visited(const Source& source, std::uint64_t position) {
  const std::uint64_t key = mix64(source.seed, position / source.samples);
  std::uint64_t value = position % source.samples;
  do {
    value = permuted(value, key, source.half_bits);
  } while (value >= source.samples);  // terminates: a permutation's cycle returns to its start, which is a sample
  return source.first + value;
}

SampleId Sampler::at(std::uint64_t position) const {
  if (places_.empty()) return SampleId(visited(sources_[0], position));
  const std::uint64_t key = mix64(seed_, ~(position / block));
  const Place place = places_[permuted(position % block, key, block_half_bits)];
  const Source& source = sources_[place.source];
  return SampleId(visited(source, position / block * source.share + place.number));
}

}  // namespace maestro
