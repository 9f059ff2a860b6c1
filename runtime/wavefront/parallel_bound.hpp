// SPDX-License-Identifier: Apache-2.0
// Lower bounds for jobs with heads, bodies and tails on identical machines, P | r_j, q_j | C_max. Pure functions;
// milliseconds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace maestro {

/// A job that starts at `head` or later, keeps a machine busy for `body`, and ends everything `tail` after its end at
/// the earliest. A body may be in several parts on the same machine.
struct BoundedJob {
  double head = 0;
  double body = 0;
  double tail = 0;
};

/// Sums of idle times on machines before their first and after their last job: before[k] for the k machines that start
/// earliest, and after[k] for the k that end latest; both hold for any k machines, and grow by more with every k.
/// Empty: no bound beyond the jobs.
struct EdgeSums {
  std::vector<double> before;
  std::vector<double> after;
};

/// Returns the largest bound over all l and k from the l longest jobs: some k of m machines run k floor(l / m) + min(k,
/// l mod m) of them or more; that many shortest jobs, with the k smallest heads and tails, take k C_max (lifting:
/// Haouari, Gharbi and Jemmali 2006; heads and tails: Carlier 1987). Zero with fewer jobs than machines. O(n log n).
double parallel_bound(std::span<const BoundedJob> jobs, std::size_t machines, const EdgeSums& edges = {});

/// Returns the makespan of the preemptive single-machine schedule by the longest tail (Jackson; Carlier 1982): exact
/// for preemptive jobs, so a bound for others. Bodies are undivided. O(n log n).
double preemptive_schrage(std::vector<BoundedJob> jobs);

}  // namespace maestro
