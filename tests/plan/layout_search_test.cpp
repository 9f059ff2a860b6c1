// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/layout_search.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

PricedLayout priced(std::int64_t replicas, std::vector<double> work_ms) {
  PricedLayout layout;
  layout.layout.replicas = replicas;
  layout.work_ms = std::move(work_ms);
  return layout;
}

LayoutChoices drawn_section(std::mt19937& random, int devices) {
  const auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  LayoutChoices section;
  for (int layout = 0; layout < 1 + below(4); ++layout) {
    const int count = 1 + below(devices + 1);  // sometimes more devices than exist
    std::vector<double> work;
    for (int device = 0; device < count; ++device) work.push_back(1 + below(40));
    section.layouts.push_back(priced(count, work));
  }
  if (below(4) > 0) return section;
  const std::size_t count = section.layouts.front().work_ms.size();
  for (std::size_t device = 0; device < count && count <= static_cast<std::size_t>(devices); ++device) {
    section.devices.push_back((below(devices) + static_cast<int>(device)) % devices);
  }
  std::ranges::sort(section.devices);
  if (std::ranges::adjacent_find(section.devices) != section.devices.end()) section.devices.clear();  // no device twice
  return section;
}

using Placed = std::vector<std::map<int, std::vector<double>>>;  // work of each device, by core, for each section

/// Returns the bound as LB-2 states it: for every selection of sections, their work over their cores.
double bound_by_selections(const Placed& placed) {
  double bound = 0;
  for (const auto& section : placed) {
    for (const auto& [core, work] : section) bound = std::max(bound, std::ranges::max(work));
  }
  for (std::size_t chosen = 1; chosen < std::size_t{1} << placed.size(); ++chosen) {
    std::set<int> cores;
    double work = 0;
    for (std::size_t section = 0; section < placed.size(); ++section) {
      if ((chosen >> section & 1) == 0) continue;
      for (const auto& [core, parts] : placed[section]) {
        cores.insert(core);
        for (const double ms : parts) work += ms;
      }
    }
    bound = std::max(bound, work / static_cast<double>(cores.size()));
  }
  return bound;
}

double busiest(const Placed& placed) {
  std::map<int, double> load;
  double most = 0;
  for (const auto& section : placed) {
    for (const auto& [core, work] : section) {
      for (const double ms : work) most = std::max(most, load[core] += ms);
    }
  }
  return most;
}

/// Returns a figure of all layouts, sorted; tries each layout on every first device.
std::vector<double> of_all(const std::vector<LayoutChoices>& sections, const SearchedDevices& on,
                           double (*figure)(const Placed&)) {
  const int devices = on.count;
  std::vector<double> figures;
  Placed placed;
  const std::function<void()> extend = [&] {
    if (placed.size() == sections.size()) return figures.push_back(figure(placed));
    const LayoutChoices& section = sections[placed.size()];
    for (const PricedLayout& layout : section.layouts) {
      const bool given = !section.devices.empty();
      if (given ? section.devices.size() != layout.work_ms.size() : static_cast<int>(layout.work_ms.size()) > devices) {
        continue;
      }
      for (int begin = 0; begin < (given ? 1 : devices); ++begin) {
        auto& here = placed.emplace_back();
        for (std::size_t at = 0; at < layout.work_ms.size(); ++at) {
          const int device = given ? section.devices[at] : (begin + static_cast<int>(at)) % devices;
          here[on.cores == 0 ? device : device % on.cores].push_back(layout.work_ms[at]);
        }
        extend();
        placed.pop_back();
      }
    }
  };
  extend();
  std::ranges::sort(figures);
  return figures;
}

class SearchedCores : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(LayoutSearch, SearchedCores, ::testing::Values(0, 1, 2, 3));

TEST_P(SearchedCores, the_best_are_those_of_trying_all) {  // LB-1, LB-2
  std::mt19937 random(7);
  int with_layouts = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const SearchedDevices devices{1 + trial % 4, GetParam()};
    std::vector<LayoutChoices> sections;
    for (int section = 0; section < 1 + trial % 3; ++section) sections.push_back(drawn_section(random, devices.count));
    const std::vector<double> bounds = of_all(sections, devices, bound_by_selections);
    const FoundLayouts found = best_layouts(sections, devices, 5);
    ASSERT_EQ(found.best.empty(), bounds.empty()) << trial;
    if (bounds.empty()) continue;
    ++with_layouts;
    EXPECT_EQ(found.least_bound_ms, bounds.front()) << trial;
    EXPECT_EQ(found.best.front().busiest_ms, of_all(sections, devices, busiest).front()) << trial;
    const std::set<double> distinct(bounds.begin(), bounds.end());
    for (std::size_t at = 0; at < found.best.size(); ++at) {
      EXPECT_TRUE(distinct.contains(found.best[at].bound_ms)) << trial;
      EXPECT_EQ(bound_of(sections, found.best[at], devices), found.best[at].bound_ms) << trial;
      EXPECT_LE(found.best[at == 0 ? 0 : at - 1].busiest_ms, found.best[at].busiest_ms) << trial;
      EXPECT_LE(found.best[at].bound_ms, found.best[at].busiest_ms * (1 + 1e-12)) << trial;
    }
  }
  EXPECT_GT(with_layouts, 300);
}

TEST(LayoutSearch, no_device_has_more_than_its_memory) {  // LB-3
  std::mt19937 random(11);
  int fewer = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const int devices = 1 + trial % 3;
    std::vector<LayoutChoices> sections;
    for (int section = 0; section < 1 + trial % 3; ++section) sections.push_back(drawn_section(random, devices));
    for (LayoutChoices& section : sections) {
      for (PricedLayout& layout : section.layouts) layout.bytes = layout.work_ms;  // then the load is the memory
    }
    constexpr double most_bytes = 45;
    const FoundLayouts all = best_layouts(sections, {devices}, 1000);
    const FoundLayouts fitting = best_layouts(sections, {devices}, 1000, most_bytes);
    std::vector<double> expected;
    for (const JobLayout& layout : all.best) {
      if (layout.busiest_ms <= most_bytes) expected.push_back(layout.busiest_ms);
    }
    ASSERT_EQ(fitting.best.size(), expected.size()) << trial;
    for (std::size_t at = 0; at < expected.size(); ++at) EXPECT_EQ(fitting.best[at].busiest_ms, expected[at]) << trial;
    if (expected.size() < all.best.size()) ++fewer;
  }
  EXPECT_GT(fewer, 20);
}

TEST(LayoutSearch, sections_are_laid_beside_each_other_where_that_is_better) {
  LayoutChoices heavy{"heavy", {priced(1, {10}), priced(2, {6, 6})}, {}};
  LayoutChoices light{"light", {priced(1, {9})}, {}};
  const FoundLayouts found = best_layouts({heavy, light}, {2}, 10);
  ASSERT_THAT(found.best, SizeIs(4));  // devices that differ only in name count once
  EXPECT_EQ(found.best[0].bound_ms, 10);
  EXPECT_THAT(found.best[0].devices, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(found.best[0].layouts, ElementsAre(0U, 0U));
}

TEST(LayoutSearch, given_devices_stay) {
  LayoutChoices there{"there", {priced(1, {5}), priced(2, {3, 3})}, {1}};
  const FoundLayouts found = best_layouts({there}, {2}, 10);
  ASSERT_THAT(found.best, SizeIs(1));
  EXPECT_THAT(found.best[0].devices, ElementsAre(ElementsAre(1)));
}

TEST(LayoutSearch, degrees_fit_the_devices_and_micro_batches_the_samples) {
  const std::vector<SectionLayout> layouts = possible_layouts(6, 4, true);
  std::set<SectionLayout> seen;
  for (const SectionLayout& layout : layouts) {
    EXPECT_LE(layout.devices(), 6);
    EXPECT_LE(layout.micro_batch * layout.replicas, 2 * 4);
    EXPECT_FALSE(layout.zero && layout.replicas == 1);
    EXPECT_TRUE(seen.insert(layout).second);
  }
  EXPECT_TRUE(seen.contains({1, 6, 1, 1, 1, false, 1})) << "all devices, though 6 is no power of two";
  EXPECT_TRUE(seen.contains({2, 1, 1, 1, 1, true, 2}));
  EXPECT_TRUE(seen.contains({1, 1, 1, 2, 4, false, 2}));
  EXPECT_FALSE(seen.contains({2, 1, 1, 1, 2, false, 2})) << "chunks without a pipeline";
  EXPECT_FALSE(seen.contains({6, 1, 1, 1, 1, false, 1})) << "more replicas than samples";
  for (const SectionLayout& layout : possible_layouts(4, 8, false)) EXPECT_FALSE(layout.zero);
}

TEST(LayoutSearch, all_ranks_of_a_replica_may_share_experts) {
  const std::vector<SectionLayout> plain = possible_layouts(8, 4, true);
  for (const SectionLayout& layout : plain) EXPECT_EQ(layout.expert, 1);
  std::vector<SectionLayout> layouts = possible_layouts(8, 4, true, 4);  // eight ranks cannot share four experts
  const auto shared = std::ranges::stable_partition(layouts, [](const auto& layout) { return layout.expert == 1; });
  EXPECT_EQ(std::vector(layouts.begin(), shared.begin()), plain);
  EXPECT_FALSE(shared.empty());
  for (const SectionLayout& layout : shared) {
    EXPECT_EQ(layout.expert, layout.tensor * layout.context);
    EXPECT_LE(layout.expert, 4);
  }
}

}  // namespace
}  // namespace maestro
