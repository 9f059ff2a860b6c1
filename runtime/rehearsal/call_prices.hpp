// SPDX-License-Identifier: Apache-2.0
// Prices of the calls of operators and groups on a kind of device, from measured calls. Pure; not thread-safe.
//
// QC-1 (as measured): a call that was measured costs the median of its times.
// QC-2 (between neighbours): any other costs its work at a rate between those of the measured calls of its operator and
//       dtype with the nearest less and the nearest more work, by the logarithm of the work; beyond them, at the rate
//       of the nearest. So more work of an operator never has a rate that was not measured.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ops/operator_call.hpp"

namespace maestro {

/// Milliseconds by where they come from.
struct PriceSources {
  double measured_ms = 0;
  double estimated_ms = 0;
  [[nodiscard]] double measured_share() const {
    const double all = measured_ms + estimated_ms;
    return all > 0 ? measured_ms / all : 1;
  }
  PriceSources& operator+=(const PriceSources& more) {
    measured_ms += more.measured_ms;
    estimated_ms += more.estimated_ms;
    return *this;
  }
};

/// The costs of calls on some devices.
class CallPricing {
 public:
  virtual ~CallPricing() = default;
  /// Returns the milliseconds of a call; `sources` counts them.
  [[nodiscard]] virtual double ms(const OperatorCall& call, PriceSources& sources) const = 0;
  /// Returns the milliseconds of the runtime beside a call.
  [[nodiscard]] virtual double glue_ms() const = 0;
  /// Returns the milliseconds in which each of the replicas of a section sends its part of `bytes` to all others, once;
  /// 0 where they share memory.
  [[nodiscard]] virtual double exchange_ms(double /*bytes*/, std::int64_t /*replicas*/) const { return 0; }
  /// Returns the milliseconds of a tensor's way to a section on other devices; 0 where they share memory.
  [[nodiscard]] virtual double write_ms(double /*bytes*/) const { return 0; }
  /// Returns whether the calls are those of devices with memory of their own.
  [[nodiscard]] virtual bool own_memory() const { return false; }
};

class CallPrices final : public CallPricing {
 public:
  void add(const OperatorCall& call, double ms);
  /// A pass with this many calls took `ms` beside them: the runtime's own work for each. Below 0 where calls that
  /// follow each other take less than calls that are timed one by one.
  void add_glue(std::size_t calls, double ms);
  /// The prices are of devices with memory of their own, whose replicas add up gradients by groups.
  void set_own_memory() { own_memory_ = true; }

  [[nodiscard]] bool has(const OperatorCall& call) const { return calls_.contains(call); }
  [[nodiscard]] bool empty() const { return calls_.empty(); }
  /// Returns the milliseconds of a call; 0 for an operator of which nothing was measured, in any dtype. `sources`
  /// counts them.
  [[nodiscard]] double ms(const OperatorCall& call, PriceSources& sources) const override;
  /// Returns the median of the milliseconds beside a call; 0: none were added.
  [[nodiscard]] double glue_ms() const override;
  /// With memory of their own: half of a reduce_scatter and an all_gather.
  [[nodiscard]] double exchange_ms(double bytes, std::int64_t replicas) const override;
  [[nodiscard]] bool own_memory() const override { return own_memory_; }

  /// Returns every measured call with its cost, in order.
  [[nodiscard]] std::vector<std::pair<OperatorCall, double>> measured() const;

 private:
  using Rates = std::map<double, double>;  // of an operator and dtype: milliseconds per unit of work, by work
  void make_rates() const;
  std::map<OperatorCall, std::vector<double>> calls_;
  std::vector<double> glue_;
  bool own_memory_ = false;
  mutable std::map<std::pair<std::string, DType>, Rates> rates_;  // of calls_; built at the first estimate
};

/// The least times of calls on a device: at the best rates of FLOPs and of bytes that any measured call of 20 us or
/// more has reached (the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009). Where none was measured,
/// calls are too small to fill the device, and take nothing of it.
class LeastPrices final : public CallPricing {
 public:
  explicit LeastPrices(const CallPrices& prices);
  [[nodiscard]] double ms(const OperatorCall& call, PriceSources& sources) const override;
  [[nodiscard]] double glue_ms() const override { return 0; }

 private:
  double ms_per_flop_ = 0;
  double ms_per_byte_ = 0;
};

}  // namespace maestro
