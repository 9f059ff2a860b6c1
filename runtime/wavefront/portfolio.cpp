// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/portfolio.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

using Anchor = Anchors::Anchor;
using Orders = std::vector<std::vector<int>>;

/// Anchors linked with other sections, in either direction, and anchors without links.
struct Split {
  std::vector<int> fed;
  std::vector<int> free;
};

Split split(const Anchors& anchors) {
  Split result;
  for (int n = 0; n < static_cast<int>(anchors.list.size()); ++n) {
    (anchors.list[n].upstream_ms + anchors.list[n].downstream_ms > 0 ? result.fed : result.free).push_back(n);
  }
  return result;
}

template <class Key>
void sort_by(std::vector<int>& order, Key key) {
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
}

std::vector<int> joined(std::vector<int> first, const std::vector<int>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Returns sorted values dealt out so that every stretch of the result holds the same mix: the n-th goes to the
/// fractional part of n times the golden ratio, which leaves no two neighbours in value close in place (Weyl 1916;
/// three-gap theorem).
std::vector<int> dealt_out(const std::vector<int>& sorted) {
  constexpr double golden = 0.6180339887498949;
  std::vector<std::pair<double, int>> places;
  for (std::size_t n = 0; n < sorted.size(); ++n) {
    const double turns = static_cast<double>(n) * golden;
    places.emplace_back(turns - std::floor(turns), sorted[n]);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> result;
  for (const auto& [place, index] : places) result.push_back(index);
  return result;
}

std::vector<int> longest_first(std::vector<int> sorted) {
  std::reverse(sorted.begin(), sorted.end());
  return sorted;
}

/// Returns the longest early, but each between others, so that lanes need not wait until several long inputs are made;
/// then falling.
std::vector<int> long_ones_early(const std::vector<int>& sorted) {
  const std::size_t longest = sorted.size() / 8;
  std::vector<int> result;
  auto others = sorted.rbegin() + static_cast<std::ptrdiff_t>(longest);
  for (auto one = sorted.rbegin(); one != sorted.rbegin() + static_cast<std::ptrdiff_t>(longest); ++one) {
    result.insert(result.end(), {others[0], others[1], *one});
    others += 2;
  }
  result.insert(result.end(), others, sorted.rend());
  return result;
}

/// Returns an order that rises to the longest, with every `stride`-th anchor, then falls with the others. While inputs
/// are few, long anchors would let lanes starve; the longer the queue, the longer a task may take to make.
std::vector<int> mountain(const std::vector<int>& sorted, std::size_t stride) {
  std::vector<int> result;
  std::vector<int> falling;
  for (std::size_t n = 0; n < sorted.size(); ++n) (n % stride == 0 ? result : falling).push_back(sorted[n]);
  result.insert(result.end(), falling.rbegin(), falling.rend());
  return result;
}

/// Returns the anchors of two orders by the mean of their places.
std::vector<int> halfway(const std::vector<int>& one, const std::vector<int>& other) {
  std::vector<std::pair<std::size_t, int>> places;
  for (std::size_t n = 0; n < one.size(); ++n) {
    const auto place = std::find(other.begin(), other.end(), one[n]) - other.begin();
    places.emplace_back(n + static_cast<std::size_t>(place), one[n]);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> result;
  for (const auto& [place, index] : places) result.push_back(index);
  return result;
}

/// Returns the `edge` shortest first and as many last, with the others between them in the order of `middle`.
template <class Middle>
std::vector<int> short_at_both_ends(std::vector<int> order, const Anchors& anchors, std::size_t edge, Middle middle) {
  sort_by(order, [&](int n) { return anchors.list[n].upstream_ms + anchors.list[n].body_ms; });
  edge = std::min(edge, order.size() / 4);
  std::vector<int> head;
  std::vector<int> tail;
  for (std::size_t n = 0; n < 2 * edge; ++n) (n % 2 == 0 ? tail : head).push_back(order[n]);
  std::reverse(tail.begin(), tail.end());
  const std::vector<int> rest(order.begin() + static_cast<std::ptrdiff_t>(2 * edge), order.end());
  return joined(joined(std::move(head), middle(rest)), tail);
}

/// Sorts by Johnson 1954 for two stages of given lengths: first the anchors whose first stage is shorter, by it; then
/// the others by their second stage, falling.
template <class First, class Second>
std::vector<int> johnson(const Anchors& anchors, First first, Second second) {
  std::vector<int> order(anchors.list.size());
  std::iota(order.begin(), order.end(), 0);
  sort_by(order, [&](int n) {
    const double before_ms = first(anchors.list[n]);
    const double behind_ms = second(anchors.list[n]);
    return before_ms < behind_ms ? std::pair(0, before_ms) : std::pair(1, -behind_ms);
  });
  return order;
}

/// Returns Johnson's order of the critical section and the stage before it or, if there is none, the stage after it.
std::vector<int> johnson(const Anchors& anchors) {
  const bool starts = std::none_of(anchors.list.begin(), anchors.list.end(),
                                   [](const Anchor& anchor) { return anchor.upstream_ms > 0; });
  const auto upstream = [](const Anchor& anchor) { return anchor.upstream_ms; };
  const auto body = [](const Anchor& anchor) { return anchor.body_ms; };
  const auto downstream = [](const Anchor& anchor) { return anchor.downstream_ms; };
  return starts ? johnson(anchors, body, downstream) : johnson(anchors, upstream, body);
}

/// Returns orders by heads and tails (Carlier 1982): the soonest ready with the longest tail first, pure or mixed.
Orders orders_by_tail(std::vector<int> fed, const Anchors& anchors) {
  const auto by_tail = [&](std::vector<int> order, double heads) {
    sort_by(order, [&](int n) { return heads * anchors.list[n].head_ms - anchors.list[n].tail_ms; });
    return order;
  };
  Orders orders{by_tail(fed, 1), by_tail(fed, 3)};
  for (const int edge : {anchors.lanes, anchors.upstream_in_flight}) {
    orders.push_back(
        short_at_both_ends(fed, anchors, edge, [&](std::vector<int> middle) { return by_tail(std::move(middle), 0); }));
  }
  for (const double heads : {0.0, 1.0}) {
    fed = by_tail(std::move(fed), heads);
    orders.push_back(halfway(fed, dealt_out(fed)));
  }
  return orders;
}

/// Returns, by task, whether it needs, or is needed by, a task of `section`.
std::vector<char> linked_with(const PlanningGraph& graph, int section) {
  std::vector<char> before(graph.tasks.size());
  std::vector<char> behind(graph.tasks.size());
  const auto of_section = [&](std::size_t task) { return graph.tasks[task].section == section; };
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    for (const auto& [edge, producer] : graph.inputs_of(task)) {
      before[task] = before[task] != 0 || before[producer] != 0 || of_section(producer);
    }
  }
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    for (const auto& [edge, producer] : graph.inputs_of(task)) {
      behind[producer] = behind[producer] != 0 || behind[task] != 0 || of_section(task);
    }
  }
  for (std::size_t task = 0; task < before.size(); ++task) before[task] = before[task] != 0 || behind[task] != 0;
  return before;
}

double load_of(const PlanningGraph::Section& section) {
  return section.work_ms / section.rate;
}

/// Returns the section with the most work per lane, the last among equals: it determines the orders of earlier
/// sections.
int critical_section(const PlanningGraph& graph) {
  int critical = 0;
  double most = -1;
  for (int n = 0; n < static_cast<int>(graph.sections.size()); ++n) {
    if (graph.sections[n].tasks == 0 || load_of(graph.sections[n]) < most) continue;
    most = load_of(graph.sections[n]);
    critical = n;
  }
  return critical;
}

/// Returns the section with the second most work per lane; -1 if there is none.
int second_section(const PlanningGraph& graph, int critical) {
  int second = -1;
  double most = -1;
  for (int n = 0; n < static_cast<int>(graph.sections.size()); ++n) {
    if (n == critical || load_of(graph.sections[n]) <= most) continue;
    most = load_of(graph.sections[n]);
    second = n;
  }
  return second;
}

/// Returns, by task, the work of the tasks before it, along every path.
std::vector<double> upstream_work(const PlanningGraph& graph) {
  std::vector<double> upstream(graph.tasks.size());
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    for (const auto& [edge, producer] : graph.inputs_of(task)) {
      upstream[task] += upstream[producer] + graph.tasks[producer].forward_ms + graph.tasks[producer].backward_ms;
    }
  }
  return upstream;
}

/// Returns, by task, the work of the tasks after it, along every path.
std::vector<double> downstream_work(const PlanningGraph& graph) {
  std::vector<double> downstream(graph.tasks.size());
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    for (const auto& [edge, producer] : graph.inputs_of(task)) {
      downstream[producer] += downstream[task] + graph.tasks[task].forward_ms + graph.tasks[task].backward_ms;
    }
  }
  return downstream;
}

/// Returns the free anchors by length, the longest first, except for short anchors at the start: while the first inputs
/// are made, the lanes take short tasks, to be free for the inputs.
std::vector<int> order_of_free(std::vector<int> free, const Anchors& anchors) {
  sort_by(free, [&](int n) { return anchors.list[n].body_ms; });
  const auto shortest = std::min(static_cast<std::size_t>(anchors.lanes), free.size() / 4);
  std::vector<int> short_start;
  for (std::size_t n = 0; n < shortest; ++n) {
    short_start.push_back(free[n + shortest]);
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(n + shortest));
  }
  return joined(std::move(short_start), longest_first(std::move(free)));
}

/// Returns orders of the fed anchors that place long and short anchors.
Orders orders_by_length(const std::vector<int>& fed, const Anchors& anchors) {
  Orders orders;
  std::vector<int> rising = fed;
  sort_by(rising, [&](int n) { return anchors.list[n].upstream_ms + anchors.list[n].body_ms; });
  for (const std::size_t stride : {2, 4, 8, 16}) orders.push_back(mountain(rising, stride));
  orders.push_back(fed);
  const auto lanes = static_cast<std::size_t>(anchors.lanes);
  for (const std::size_t edge : {lanes, 2 * lanes}) {
    orders.push_back(short_at_both_ends(fed, anchors, edge, longest_first));
    orders.push_back(short_at_both_ends(fed, anchors, edge, dealt_out));
    orders.push_back(short_at_both_ends(fed, anchors, edge, long_ones_early));
  }
  return orders;
}

/// Returns orders of the fed anchors by a single time; ties use the previous time in this function.
Orders orders_by_time(const std::vector<int>& given, const Anchors& anchors) {
  const auto& list = anchors.list;
  Orders orders;
  const Orders by_tail = orders_by_tail(given, anchors);
  std::vector<int> fed = given;
  sort_by(fed, [&](int n) { return -list[n].body_ms; });
  orders.push_back(fed);
  orders.push_back(dealt_out(fed));
  sort_by(fed, [&](int n) { return -list[n].tail_ms; });  // Schrage's rule
  orders.push_back(fed);
  orders.insert(orders.end(), by_tail.begin(), by_tail.end());
  sort_by(fed, [&](int n) { return list[n].upstream_ms; });
  orders.push_back(fed);
  std::reverse(fed.begin(), fed.end());
  orders.push_back(fed);
  sort_by(fed, [&](int n) { return -list[n].downstream_ms; });
  orders.push_back(fed);
  return orders;
}

/// Returns orders of the fed anchors that put pressing anchors first; none if all or no anchors are pressing.
Orders orders_by_pressure(const std::vector<int>& fed, const Anchors& anchors) {
  std::vector<int> pressing;
  std::vector<int> other;
  for (const int n : fed) (anchors.list[n].pressing ? pressing : other).push_back(n);
  if (pressing.empty() || other.empty()) return {};
  Orders orders;
  const auto held = static_cast<std::size_t>(anchors.upstream_in_flight);
  orders.push_back(joined(short_at_both_ends(pressing, anchors, held, dealt_out), dealt_out(other)));
  sort_by(pressing, [&](int n) { return -anchors.list[n].body_ms; });
  sort_by(other, [&](int n) { return -anchors.list[n].body_ms; });
  orders.push_back(joined(pressing, other));
  orders.push_back(joined(dealt_out(pressing), dealt_out(other)));
  return orders;
}

}  // namespace

Anchors::Anchors(const Workload& workload, const PlanningGraph& graph) : section(critical_section(graph)) {
  const std::vector<char> pressing = linked_with(graph, second_section(graph, section));
  const std::vector<PassPaths> paths = pass_paths(workload, consumers_of(workload));
  const std::vector<double> upstream = upstream_work(graph);
  const std::vector<double> downstream = downstream_work(graph);
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    const PlanningGraph::Task& given = graph.tasks[task];
    if (given.section != section) continue;
    list.push_back({static_cast<int>(task), paths[task].forward_head, given.forward_ms + given.backward_ms,
                    paths[task].forward_tail, upstream[task], downstream[task], pressing[task] != 0});
  }
  lanes = graph.sections[section].lanes;
  for (int n = 0; n < section; ++n) {
    const PlanningGraph::Section& before = graph.sections[n];
    const int limit = before.max_in_flight == unlimited ? 4 : before.max_in_flight;
    upstream_in_flight += before.lanes * std::min(limit, 8);
  }
}

std::vector<std::vector<int>> anchor_orders(const Anchors& anchors) {
  const auto& list = anchors.list;
  const Split parts = split(anchors);
  const std::vector<int> free = order_of_free(parts.free, anchors);
  const std::vector<int> mixed =
      short_at_both_ends(parts.fed, anchors, static_cast<std::size_t>(anchors.upstream_in_flight), dealt_out);
  std::vector<int> all(list.size());
  std::iota(all.begin(), all.end(), 0);

  Orders orders{joined(mixed, free), johnson(anchors)};
  // Soonest ready and with the longest tail (Carlier 1982), free tasks among the others.
  std::vector<int> soonest = all;
  sort_by(soonest, [&](int n) { return list[n].head_ms - list[n].tail_ms; });
  orders.push_back(soonest);
  orders.push_back(halfway(soonest, dealt_out(soonest)));
  for (const auto make : {orders_by_length, orders_by_time, orders_by_pressure}) {
    for (const std::vector<int>& fed : make(parts.fed, anchors)) orders.push_back(joined(fed, free));
  }
  orders.push_back(all);
  sort_by(all, [&](int n) { return -list[n].body_ms; });
  orders.push_back(all);
  orders.push_back(dealt_out(all));
  orders.push_back(joined(longest_first(free), mixed));  // the free anchors in reverse
  return orders;
}

std::vector<int> spread_order(const PlanningGraph& graph, const Anchors& anchors,
                              const std::vector<int>& anchor_order) {
  constexpr int unset = std::numeric_limits<int>::max();
  std::vector<int> key(graph.tasks.size(), unset);
  for (std::size_t n = 0; n < anchor_order.size(); ++n) {
    key[anchors.list[anchor_order[n]].task] = static_cast<int>(n);
  }
  const auto inherits = [&](std::size_t task) { return graph.tasks[task].section != anchors.section; };
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    for (const auto& [edge, producer] : graph.inputs_of(task)) {
      if (inherits(producer)) key[producer] = std::min(key[producer], key[task]);
    }
  }
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    if (!inherits(task) || key[task] != unset) continue;
    for (const auto& [edge, producer] : graph.inputs_of(task)) key[task] = std::min(key[task], key[producer]);
  }
  std::vector<int> order(graph.tasks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(graph.tasks[a].section, key[a]) < std::pair(graph.tasks[b].section, key[b]);
  });
  return order;
}

}  // namespace maestro
