// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/layout_search.hpp"

#include <algorithm>
#include <bitset>
#include <queue>
#include <set>
#include <tuple>

namespace maestro {

namespace {

constexpr std::size_t most_combined = 10;  // sections whose combinations are all examined

/// Returns the bound (LB-2) of a layout's first `count` sections.
double bound_of_first(const std::vector<LayoutChoices>& sections, const JobLayout& layout,
                      const SearchedDevices& devices, std::size_t count) {
  std::vector<double> work(count);
  std::vector<std::bitset<64>> cores(count);
  double bound = 0;
  for (std::size_t section = 0; section < count; ++section) {
    for (const double ms : sections[section].layouts[layout.layouts[section]].work_ms) {
      bound = std::max(bound, ms);  // replicas of a stage have this much on average
      work[section] += ms;
    }
    for (const int device : layout.devices[section])
      cores[section].set(static_cast<std::size_t>(devices.core_of(device)));
  }
  const std::size_t combined = std::min(count, most_combined);
  for (std::size_t chosen = 1; chosen < std::size_t{1} << combined; ++chosen) {
    double sum = 0;
    std::bitset<64> between;
    for (std::size_t section = 0; section < combined; ++section) {
      if ((chosen >> section & 1) == 0) continue;
      sum += work[section];
      between |= cores[section];
    }
    bound = std::max(bound, sum / static_cast<double>(between.count()));
  }
  return bound;
}

/// Finds the layouts that are first in an order.
class Search {
 public:
  /// `order`: busiest_ms or bound_ms; neither falls when a section is added.
  Search(const std::vector<LayoutChoices>& sections, const SearchedDevices& devices, std::size_t most,
         double most_bytes, double JobLayout::*order)
      : sections_(sections),
        devices_(devices),
        most_(most),
        most_bytes_(most_bytes),
        order_(order),
        load_(static_cast<std::size_t>(devices.cores == 0 ? devices.count : std::min(devices.count, devices.cores))),
        bytes_(static_cast<std::size_t>(devices.count)),
        kept_(Before{order}) {
    // Devices are alike if none is given and all cores have equally many.
    alike_ = std::ranges::all_of(sections, [](const LayoutChoices& each) { return each.devices.empty(); }) &&
             devices.count % std::ssize(load_) == 0;
    rest_.assign(sections.size() + 1, 0);
    layouts_behind_.assign(sections.size() + 1, 1);
    for (std::size_t at = sections.size(); at-- > 0;) {
      double least = 0;
      std::uint64_t count = 0;
      for (const PricedLayout& layout : sections[at].layouts) {
        double sum = 0;
        for (const double ms : layout.work_ms) sum += ms;
        least = count == 0 ? sum : std::min(least, sum);
        count += places_of(at, layout).size();
      }
      rest_[at] = rest_[at + 1] + least;
      layouts_behind_[at] = layouts_behind_[at + 1] * count;
    }
  }

  std::vector<JobLayout> run() {
    current_.layouts.resize(sections_.size());
    current_.devices.resize(sections_.size());
    extend(0);
    std::vector<JobLayout> best;
    while (!kept_.empty()) {
      best.push_back(kept_.top());
      kept_.pop();
    }
    std::ranges::reverse(best);
    return best;
  }
  [[nodiscard]] std::uint64_t layouts() const { return layouts_behind_[0]; }

 private:
  struct Before {
    double JobLayout::*order;
    bool operator()(const JobLayout& a, const JobLayout& b) const {
      return std::tie(a.*order, a.busiest_ms, a.bound_ms, a.layouts, a.devices) <
             std::tie(b.*order, b.busiest_ms, b.bound_ms, b.layouts, b.devices);
    }
  };

  /// Returns the devices that a layout of a section may take.
  [[nodiscard]] std::vector<std::vector<int>> places_of(std::size_t section, const PricedLayout& layout) const {
    const auto needed = layout.work_ms.size();
    if (const auto& follows = sections_[section].follows) {
      if (current_.devices.empty()) return std::vector<std::vector<int>>(1);  // counted
      const std::vector<int>& others = current_.devices[*follows];
      if (others.size() != needed) return {};
      return {others};
    }
    const std::vector<int>& given = sections_[section].devices;
    if (!given.empty()) {
      if (given.size() != needed) return {};
      return {given};
    }
    const auto all = static_cast<std::size_t>(devices_.count);
    if (needed > all) return {};
    // If devices are alike, the first section begins at the first.
    const bool even = std::ranges::count(layout.work_ms, layout.work_ms.front()) == std::ssize(layout.work_ms);
    const std::size_t begins = (needed == all && even) || (section == 0 && alike_) ? 1 : all;
    std::vector<std::vector<int>> places;
    for (std::size_t begin = 0; begin < begins; ++begin) {
      std::vector<int>& place = places.emplace_back();
      for (std::size_t at = 0; at < needed; ++at) place.push_back(static_cast<int>((begin + at) % all));
    }
    return places;
  }

  void extend(std::size_t section) {
    current_.bound_ms = bound_of_first(sections_, current_, devices_, section);
    current_.busiest_ms = *std::ranges::max_element(load_);
    // The rest of the work, spread evenly, is a bound of all layouts to come.
    const double spread = (work_ms_ + rest_[section]) / static_cast<double>(load_.size());
    if (kept_.size() == most_ && std::max(current_.*order_, spread) > kept_.top().*order_) return;
    if (section == sections_.size()) return keep();
    const std::vector<PricedLayout>& layouts = sections_[section].layouts;
    for (std::size_t at = 0; at < layouts.size(); ++at) {
      current_.layouts[section] = at;
      for (const std::vector<int>& place : places_of(section, layouts[at])) {
        current_.devices[section] = place;
        const std::vector<double> load = load_;
        const std::vector<double> bytes = bytes_;
        const double work = work_ms_;
        for (std::size_t device = 0; device < place.size(); ++device) {
          load_[static_cast<std::size_t>(devices_.core_of(place[device]))] += layouts[at].work_ms[device];
          work_ms_ += layouts[at].work_ms[device];
          if (!layouts[at].bytes.empty()) bytes_[static_cast<std::size_t>(place[device])] += layouts[at].bytes[device];
        }
        if (*std::ranges::max_element(bytes_) <= most_bytes_) extend(section + 1);
        load_ = load;
        bytes_ = bytes;
        work_ms_ = work;
      }
    }
  }

  void keep() {
    if (kept_.size() < most_) return kept_.push(current_);
    if (!Before{order_}(current_, kept_.top())) return;
    kept_.pop();
    kept_.push(current_);
  }

  const std::vector<LayoutChoices>& sections_;
  SearchedDevices devices_;
  std::size_t most_;
  double most_bytes_;
  double JobLayout::*order_;
  bool alike_ = true;
  std::vector<double> load_;   // by core
  std::vector<double> bytes_;  // by device
  std::vector<double> rest_;   // least work of the sections from each on
  std::vector<std::uint64_t> layouts_behind_;
  JobLayout current_;
  double work_ms_ = 0;                                                   // of current_
  std::priority_queue<JobLayout, std::vector<JobLayout>, Before> kept_;  // the worst on top
};

/// Returns 1, 2, 4, ... up to `most`, and `most`.
std::vector<std::int64_t> degrees(std::int64_t most) {
  std::set<std::int64_t> all{most};
  for (std::int64_t degree = 1; degree <= most; degree *= 2) all.insert(degree);
  return {all.begin(), all.end()};
}

}  // namespace

FoundLayouts best_layouts(const std::vector<LayoutChoices>& sections, const SearchedDevices& devices, std::size_t most,
                          double most_bytes) {
  Search search(sections, devices, most, most_bytes, &JobLayout::busiest_ms);
  FoundLayouts found{search.run(), 0, search.layouts()};
  const std::vector<JobLayout> least = Search(sections, devices, 1, most_bytes, &JobLayout::bound_ms).run();
  if (!least.empty()) found.least_bound_ms = least.front().bound_ms;
  return found;
}

double bound_of(const std::vector<LayoutChoices>& sections, const JobLayout& layout, const SearchedDevices& devices) {
  return bound_of_first(sections, layout, devices, sections.size());
}

namespace {

/// Adds the layouts whose ranks share a layer's experts.
void add_shared_experts(std::vector<SectionLayout>& found, std::int64_t experts) {
  for (std::size_t at = 0, all = found.size(); at < all; ++at) {
    SectionLayout shared = found[at];
    shared.expert = shared.tensor * shared.context;
    if (shared.expert > 1 && experts > 0 && experts % shared.expert == 0) found.push_back(shared);
  }
}

}  // namespace

std::vector<SectionLayout> possible_layouts(std::int64_t devices, std::int64_t global_batch, bool trained,
                                            std::int64_t experts) {
  std::vector<SectionLayout> found;
  for (const std::int64_t replicas : degrees(devices)) {
    for (const std::int64_t tensor : degrees(devices)) {
      for (const std::int64_t context : degrees(devices)) {
        for (const std::int64_t pipeline : degrees(devices)) {
          if (replicas * tensor * context * pipeline > devices || replicas > global_batch) continue;
          for (std::int64_t chunks = 1; chunks <= (pipeline > 1 ? most_planned_chunks : 1); chunks *= 2) {
            for (std::int64_t samples = 1; samples <= (global_batch + replicas - 1) / replicas; samples *= 2) {
              found.push_back({replicas, tensor, context, pipeline, chunks, false, samples});
              if (trained && replicas > 1)
                found.push_back({replicas, tensor, context, pipeline, chunks, true, samples});
            }
          }
        }
      }
    }
  }
  add_shared_experts(found, experts);
  return found;
}

}  // namespace maestro
