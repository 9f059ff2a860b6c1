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

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// Those that other sections wait for or that wait for them, and those that no other section knows.
struct Split {
  std::vector<int> fed;
  std::vector<int> free;
};

Split split(const Anchors& anchors) {
  Split result;
  for (int n = 0; n < static_cast<int>(anchors.list.size()); ++n) {
    (anchors.list[at(n)].upstream_ms + anchors.list[at(n)].downstream_ms > 0 ? result.fed : result.free).push_back(n);
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

/// Sorted values dealt out so that every stretch of the result holds the same mix: the n-th goes to the fractional part
/// of n times the golden ratio, which leaves no two neighbours in value close in place (Weyl 1916; three-gap theorem).
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

/// The longest early, but each between others, so that lanes need not wait until several long inputs are made; then
/// falling.
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

/// Rising to the longest, with one of `stride` of all, then falling with the others: while inputs are few, long ones
/// would let lanes starve; the longer the line, the longer a task may take to make.
std::vector<int> mountain(const std::vector<int>& sorted, std::size_t stride) {
  std::vector<int> result;
  std::vector<int> falling;
  for (std::size_t n = 0; n < sorted.size(); ++n) (n % stride == 0 ? result : falling).push_back(sorted[n]);
  result.insert(result.end(), falling.rbegin(), falling.rend());
  return result;
}

/// By the mean of the places in two orders of the same.
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

/// The `edge` shortest first and as many last, the others between them as `middle` has it.
template <class Middle>
std::vector<int> short_at_both_ends(std::vector<int> order, const Anchors& anchors, std::size_t edge, Middle middle) {
  sort_by(order, [&](int n) { return anchors.list[at(n)].upstream_ms + anchors.list[at(n)].body_ms; });
  edge = std::min(edge, order.size() / 4);
  std::vector<int> head;
  std::vector<int> tail;
  for (std::size_t n = 0; n < 2 * edge; ++n) (n % 2 == 0 ? tail : head).push_back(order[n]);
  std::reverse(tail.begin(), tail.end());
  const std::vector<int> rest(order.begin() + static_cast<std::ptrdiff_t>(2 * edge), order.end());
  return joined(joined(std::move(head), middle(rest)), tail);
}

/// Johnson 1954 for two stages of given lengths: first those whose first stage is the shorter one, by it; then the
/// others by their second, falling.
template <class First, class Second>
std::vector<int> johnson(const Anchors& anchors, First first, Second second) {
  std::vector<int> order(anchors.list.size());
  std::iota(order.begin(), order.end(), 0);
  sort_by(order, [&](int n) {
    const double before_ms = first(anchors.list[at(n)]);
    const double behind_ms = second(anchors.list[at(n)]);
    return before_ms < behind_ms ? std::pair(0, before_ms) : std::pair(1, -behind_ms);
  });
  return order;
}

/// The two stages around the critical section, or, where it is the first of them, it and what is behind it.
std::vector<int> johnson(const Anchors& anchors) {
  const bool starts = std::none_of(anchors.list.begin(), anchors.list.end(),
                                   [](const Anchor& anchor) { return anchor.upstream_ms > 0; });
  const auto upstream = [](const Anchor& anchor) { return anchor.upstream_ms; };
  const auto body = [](const Anchor& anchor) { return anchor.body_ms; };
  const auto downstream = [](const Anchor& anchor) { return anchor.downstream_ms; };
  return starts ? johnson(anchors, body, downstream) : johnson(anchors, upstream, body);
}

/// Of heads and tails (Carlier 1982): what is there soonest and has most behind it first, pure or mixed with others.
std::vector<std::vector<int>> orders_by_tail(std::vector<int> fed, const Anchors& anchors) {
  const auto by_tail = [&](std::vector<int> order, double heads) {
    sort_by(order, [&](int n) { return heads * anchors.list[at(n)].head_ms - anchors.list[at(n)].tail_ms; });
    return order;
  };
  std::vector<std::vector<int>> orders{by_tail(fed, 1), by_tail(fed, 3)};
  for (const int edge : {anchors.lanes, anchors.upstream_in_flight}) {
    orders.push_back(short_at_both_ends(fed, anchors, at(edge),
                                        [&](std::vector<int> middle) { return by_tail(std::move(middle), 0); }));
  }
  for (const double heads : {0.0, 1.0}) {
    fed = by_tail(std::move(fed), heads);
    orders.push_back(halfway(fed, dealt_out(fed)));
  }
  return orders;
}

/// By task, whether a task of `section` is among those that it needs or that need it.
std::vector<char> linked_with(const PlanningGraph& graph, int section) {
  std::vector<char> before(graph.tasks.size());
  std::vector<char> behind(graph.tasks.size());
  const auto of_section = [&](std::size_t task) { return graph.tasks[task].section == section; };
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    for (int n = graph.tasks[task].in_begin; n < graph.tasks[task].in_end; ++n) {
      const std::size_t producer = at(graph.inputs[at(n)].task);
      before[task] = static_cast<char>(before[task] != 0 || before[producer] != 0 || of_section(producer));
    }
  }
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    for (int n = graph.tasks[task].in_begin; n < graph.tasks[task].in_end; ++n) {
      const std::size_t producer = at(graph.inputs[at(n)].task);
      behind[producer] = static_cast<char>(behind[producer] != 0 || behind[task] != 0 || of_section(task));
    }
  }
  for (std::size_t task = 0; task < before.size(); ++task) {
    before[task] = static_cast<char>(before[task] != 0 || behind[task] != 0);
  }
  return before;
}

}  // namespace

Anchors::Anchors(const Workload& workload, const PlanningGraph& graph) {
  double most = -1;
  for (int n = 0; n < static_cast<int>(graph.sections.size()); ++n) {
    const double load = graph.sections[at(n)].work_ms / graph.sections[at(n)].lanes;
    // Of equals the one behind: the order of what it needs follows from its own.
    if (graph.sections[at(n)].tasks == 0 || load < most) continue;
    most = load;
    section = n;
  }
  int second = -1;
  double pressing_load = -1;
  for (int n = 0; n < static_cast<int>(graph.sections.size()); ++n) {
    const double load = graph.sections[at(n)].work_ms / graph.sections[at(n)].lanes;
    if (n == section || load <= pressing_load) continue;
    pressing_load = load;
    second = n;
  }
  const std::vector<char> pressing = linked_with(graph, second);
  const std::vector<PassPaths> paths = pass_paths(workload, consumers_of(workload));
  std::vector<double> upstream(graph.tasks.size());
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    const PlanningGraph::Task& given = graph.tasks[task];
    for (int n = given.in_begin; n < given.in_end; ++n) {
      const std::size_t producer = at(graph.inputs[at(n)].task);
      upstream[task] += upstream[producer] + graph.tasks[producer].forward_ms + graph.tasks[producer].backward_ms;
    }
  }
  std::vector<double> downstream(graph.tasks.size());
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    const PlanningGraph::Task& given = graph.tasks[task];
    for (int n = given.in_begin; n < given.in_end; ++n) {
      downstream[at(graph.inputs[at(n)].task)] += downstream[task] + given.forward_ms + given.backward_ms;
    }
  }
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    const PlanningGraph::Task& given = graph.tasks[task];
    if (given.section != section) continue;
    list.push_back({static_cast<int>(task), paths[task].forward_head, given.forward_ms + given.backward_ms,
                    paths[task].forward_tail, upstream[task], downstream[task], pressing[task] != 0});
  }
  lanes = graph.sections[at(section)].lanes;
  for (int n = 0; n < section; ++n) {
    const PlanningGraph::Section& before = graph.sections[at(n)];
    const int limit = before.max_in_flight == unlimited ? 4 : before.max_in_flight;
    upstream_in_flight += before.lanes * std::min(limit, 8);
  }
}

std::vector<std::vector<int>> anchor_orders(const Anchors& anchors) {
  const auto& list = anchors.list;
  const Split parts = split(anchors);
  const auto lanes = static_cast<std::size_t>(anchors.lanes);
  const auto held = static_cast<std::size_t>(anchors.upstream_in_flight);

  // While the first inputs are made, the lanes take short tasks, so as to be free for them.
  std::vector<int> longest_free = parts.free;
  sort_by(longest_free, [&](int n) { return list[at(n)].body_ms; });
  const auto shortest = std::min(lanes, longest_free.size() / 4);
  std::vector<int> short_start;
  for (std::size_t n = 0; n < shortest; ++n) {
    short_start.push_back(longest_free[n + shortest]);
    longest_free.erase(longest_free.begin() + static_cast<std::ptrdiff_t>(n + shortest));
  }
  std::reverse(longest_free.begin(), longest_free.end());
  longest_free.insert(longest_free.begin(), short_start.begin(), short_start.end());
  std::vector<std::vector<int>> orders;
  orders.push_back(joined(short_at_both_ends(parts.fed, anchors, held, dealt_out), longest_free));
  orders.push_back(johnson(anchors));
  // What is there soonest and has most behind it (Carlier 1982), free tasks among the others.
  std::vector<int> soonest(list.size());
  std::iota(soonest.begin(), soonest.end(), 0);
  sort_by(soonest, [&](int n) { return list[at(n)].head_ms - list[at(n)].tail_ms; });
  orders.push_back(soonest);
  orders.push_back(halfway(soonest, dealt_out(soonest)));
  std::vector<int> rising = parts.fed;
  sort_by(rising, [&](int n) { return list[at(n)].upstream_ms + list[at(n)].body_ms; });
  for (const std::size_t stride : {2, 4, 8, 16}) orders.push_back(joined(mountain(rising, stride), longest_free));
  orders.push_back(joined(parts.fed, longest_free));
  for (const std::size_t edge : {lanes, 2 * lanes}) {
    orders.push_back(joined(short_at_both_ends(parts.fed, anchors, edge, longest_first), longest_free));
    orders.push_back(joined(short_at_both_ends(parts.fed, anchors, edge, dealt_out), longest_free));
    orders.push_back(joined(short_at_both_ends(parts.fed, anchors, edge, long_ones_early), longest_free));
  }
  std::vector<int> fed = parts.fed;
  sort_by(fed, [&](int n) { return -list[at(n)].body_ms; });
  orders.push_back(joined(fed, longest_free));
  orders.push_back(joined(dealt_out(fed), longest_free));
  sort_by(fed, [&](int n) { return -list[at(n)].tail_ms; });  // Schrage's rule
  orders.push_back(joined(fed, longest_free));
  for (const std::vector<int>& order : orders_by_tail(parts.fed, anchors))
    orders.push_back(joined(order, longest_free));
  sort_by(fed, [&](int n) { return list[at(n)].upstream_ms; });
  orders.push_back(joined(fed, longest_free));
  std::reverse(fed.begin(), fed.end());
  orders.push_back(joined(fed, longest_free));
  sort_by(fed, [&](int n) { return -list[at(n)].downstream_ms; });
  orders.push_back(joined(fed, longest_free));
  std::vector<int> pressing;
  std::vector<int> other;
  for (const int n : parts.fed) (list[at(n)].pressing ? pressing : other).push_back(n);
  if (!pressing.empty() && !other.empty()) {
    orders.push_back(
        joined(joined(short_at_both_ends(pressing, anchors, held, dealt_out), dealt_out(other)), longest_free));
    sort_by(pressing, [&](int n) { return -list[at(n)].body_ms; });
    sort_by(other, [&](int n) { return -list[at(n)].body_ms; });
    orders.push_back(joined(joined(pressing, other), longest_free));
    orders.push_back(joined(joined(dealt_out(pressing), dealt_out(other)), longest_free));
  }
  std::vector<int> all(list.size());
  std::iota(all.begin(), all.end(), 0);
  orders.push_back(all);
  sort_by(all, [&](int n) { return -list[at(n)].body_ms; });
  orders.push_back(all);
  orders.push_back(dealt_out(all));
  std::vector<int> shortest_free(longest_free.rbegin(), longest_free.rend());
  orders.push_back(joined(shortest_free, short_at_both_ends(parts.fed, anchors, held, dealt_out)));
  return orders;
}

std::vector<int> spread_order(const PlanningGraph& graph, const Anchors& anchors,
                              const std::vector<int>& anchor_order) {
  constexpr int unset = std::numeric_limits<int>::max();
  std::vector<int> key(graph.tasks.size(), unset);
  for (std::size_t n = 0; n < anchor_order.size(); ++n) {
    key[at(anchors.list[at(anchor_order[n])].task)] = static_cast<int>(n);
  }
  const auto inherits = [&](std::size_t task) { return graph.tasks[task].section != anchors.section; };
  for (std::size_t task = graph.tasks.size(); task-- > 0;) {
    const PlanningGraph::Task& given = graph.tasks[task];
    for (int n = given.in_begin; n < given.in_end; ++n) {
      const std::size_t producer = at(graph.inputs[at(n)].task);
      if (inherits(producer)) key[producer] = std::min(key[producer], key[task]);
    }
  }
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    const PlanningGraph::Task& given = graph.tasks[task];
    if (!inherits(task) || key[task] != unset) continue;
    for (int n = given.in_begin; n < given.in_end; ++n) {
      key[task] = std::min(key[task], key[at(graph.inputs[at(n)].task)]);
    }
  }
  std::vector<int> order(graph.tasks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(graph.tasks[at(a)].section, key[at(a)]) < std::pair(graph.tasks[at(b)].section, key[at(b)]);
  });
  return order;
}

}  // namespace maestro
