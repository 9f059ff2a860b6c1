// SPDX-License-Identifier: Apache-2.0
// Prices of operator calls and group calls on a kind of device, from measured calls. Pure; not thread-safe.
//
// QC-1 (as measured): a measured call costs the median of its times.
// QC-2 (between neighbours): the rate of any other call is interpolated, by the logarithm of the work, between the two
//       measured calls with the next smaller and the next larger work and the same operator and dtype. Beyond the
//       measured calls, the nearest rate is used. So rates never leave the measured range.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ops/operator_call.hpp"

namespace maestro {

/// Milliseconds by their source.
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

/// The costs of calls on some device kind.
class CallPricing {
 public:
  virtual ~CallPricing() = default;
  /// Returns the milliseconds of a call; `sources` counts them.
  [[nodiscard]] virtual double ms(const OperatorCall& call, PriceSources& sources) const = 0;
  /// Returns the runtime's milliseconds around a call.
  [[nodiscard]] virtual double glue_ms() const = 0;
  /// Returns the milliseconds in which each replica of a section sends its part of `bytes` to all others once; 0 if
  /// they share memory. `devices`: a replica's devices, all stages included.
  [[nodiscard]] virtual double exchange_ms(double /*bytes*/, std::int64_t /*replicas*/,
                                           std::int64_t /*devices*/) const {
    return 0;
  }
  /// Returns the milliseconds of a tensor's transfer to a section on other devices; 0 if they share memory.
  [[nodiscard]] virtual double write_ms(double /*bytes*/) const { return 0; }
  /// Returns whether the devices have separate memories.
  [[nodiscard]] virtual bool own_memory() const { return false; }
};

class CallPrices final : public CallPricing {
 public:
  void add(const OperatorCall& call, double ms);
  /// Adds a pass that took `ms` more than its calls: the runtime's work around each call. Negative if consecutive calls
  /// take less time than calls that are timed one by one.
  void add_glue(std::size_t calls, double ms);
  /// Declares that the devices have separate memories; their replicas add up gradients by groups.
  void set_own_memory() { own_memory_ = true; }

  [[nodiscard]] bool has(const OperatorCall& call) const { return calls_.contains(call); }
  [[nodiscard]] bool empty() const { return calls_.empty(); }
  /// Returns the milliseconds of a call; 0 for an operator that was not measured in any dtype. `sources` counts them.
  [[nodiscard]] double ms(const OperatorCall& call, PriceSources& sources) const override;
  /// Returns the median of added milliseconds per call; 0 if none were added.
  [[nodiscard]] double glue_ms() const override;
  /// Returns half the cost of a reduce_scatter and an all_gather if the memories are separate.
  [[nodiscard]] double exchange_ms(double bytes, std::int64_t replicas, std::int64_t devices) const override;
  [[nodiscard]] bool own_memory() const override { return own_memory_; }

  /// Returns every measured call with its cost, in order.
  [[nodiscard]] std::vector<std::pair<OperatorCall, double>> measured() const;

 private:
  using Rates = std::map<double, double>;  // milliseconds per unit of work, by work, for an operator and dtype
  void make_rates() const;
  std::map<OperatorCall, std::vector<double>> calls_;
  std::vector<double> glue_;
  bool own_memory_ = false;
  mutable std::map<std::pair<std::string, DType>, Rates> rates_;  // rates of calls_; built at the first estimate
};

/// Lower bounds for call times on a device: the best rates, by FLOPs and bytes, among measured calls of 20 us or
/// more (the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009). Without such a call, calls are too small
/// to fill the device, and cost nothing.
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
