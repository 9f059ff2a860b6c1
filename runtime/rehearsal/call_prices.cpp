// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/call_prices.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

/// FLOPs that count as much as a byte: many operators only move bytes, and a core or GPU does some FLOPs per byte.
constexpr double flops_per_byte = 4;
constexpr double least_work = 1e3;
constexpr double usual = 0.5;            // the median, as a run is judged by its median step
constexpr double least_timed_ms = 0.02;  // for a rate: smaller tensors are in caches, and a timer counts microseconds

double work_of(const OperatorCall& call) {
  return std::max(call.flops + flops_per_byte * call.bytes, least_work);
}

}  // namespace

void CallPrices::add(const OperatorCall& call, double ms) {
  calls_[call].push_back(ms);
  rates_.clear();
}

void CallPrices::add_glue(std::size_t calls, double ms) {
  if (calls > 0) glue_.push_back(ms / static_cast<double>(calls));
}

double CallPrices::glue_ms() const {
  return glue_.empty() ? 0 : quantile_of(glue_, usual);
}

void CallPrices::make_rates() const {
  for (const auto& [call, times] : calls_) {
    const double work = work_of(call);
    rates_[{call.op, call.dtype}][work] = quantile_of(times, usual) / work;
  }
}

double CallPrices::ms(const OperatorCall& call, PriceSources& sources) const {
  if (const auto found = calls_.find(call); found != calls_.end()) {
    const double ms = quantile_of(found->second, usual);
    sources.measured_ms += ms;
    return ms;
  }
  if (rates_.empty()) make_rates();
  auto found_rates = rates_.find({call.op, call.dtype});
  if (found_rates == rates_.end()) found_rates = rates_.lower_bound({call.op, DType::f32});  // rates for another dtype
  if (found_rates == rates_.end() || found_rates->first.first != call.op) return 0;
  const Rates& rates = found_rates->second;
  const double work = work_of(call);
  const auto above = rates.lower_bound(work);
  double rate = 0;
  if (above == rates.begin()) {
    rate = above->second;
  } else if (above == rates.end()) {
    rate = std::prev(above)->second;
  } else {
    const auto below = std::prev(above);
    const double share = std::log(work / below->first) / std::log(above->first / below->first);
    rate = below->second + share * (above->second - below->second);
  }
  sources.estimated_ms += rate * work;
  return rate * work;
}

double CallPrices::exchange_ms(double bytes, std::int64_t replicas, std::int64_t /*devices*/) const {
  if (!own_memory_ || replicas == 1) return 0;
  double sum = 0;
  PriceSources unused;
  for (const char* const group : {"reduce_scatter", "all_gather"}) {
    sum += ms({group, DType::f32, {static_cast<std::int64_t>(bytes), replicas}, 0, bytes}, unused);
  }
  return sum / 2;
}

std::vector<std::pair<OperatorCall, double>> CallPrices::measured() const {
  std::vector<std::pair<OperatorCall, double>> list;
  for (const auto& [call, times] : calls_) list.emplace_back(call, quantile_of(times, usual));
  return list;
}

LeastPrices::LeastPrices(const CallPrices& prices) {
  double flops_per_ms = 0;
  double bytes_per_ms = 0;
  for (const auto& [call, ms] : prices.measured()) {
    if (ms < least_timed_ms) continue;
    flops_per_ms = std::max(flops_per_ms, call.flops / ms);
    bytes_per_ms = std::max(bytes_per_ms, call.bytes / ms);
  }
  if (flops_per_ms > 0) ms_per_flop_ = 1 / flops_per_ms;
  if (bytes_per_ms > 0) ms_per_byte_ = 1 / bytes_per_ms;
}

double LeastPrices::ms(const OperatorCall& call, PriceSources& sources) const {
  const double ms = std::max(call.flops * ms_per_flop_, call.bytes * ms_per_byte_);
  sources.estimated_ms += ms;
  return ms;
}

}  // namespace maestro
