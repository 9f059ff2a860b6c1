// SPDX-License-Identifier: Apache-2.0
// A value that a device writes in the order of its work.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace maestro {

/// A plain value, or a value read from memory that a device writes: get() may be called after all work that was queued
/// before is complete (Device::finish). Copies refer to the same memory and keep it. Converts from and to the plain
/// value, so that code for CPUs can ignore it.
template <class T>
class Pending {
 public:
  Pending(const T& known) : known_(known) {}  // NOLINT(google-explicit-constructor): see above
  explicit Pending(std::shared_ptr<const T> later) : later_(std::move(later)) {}
  /// Makes the sum of parts, formed by += in their order when it is read. T() is zero.
  explicit Pending(std::vector<Pending> parts)
      : parts_(std::make_shared<const std::vector<Pending>>(std::move(parts))) {}
  /// Takes the value of `promised` at the time of get(): its owner sets it when the work is queued.
  explicit Pending(std::shared_ptr<const Pending> promised) : promised_(std::move(promised)) {}
  [[nodiscard]] T get() const {
    if (promised_) return promised_->get();
    if (!parts_) return later_ ? *later_ : known_;
    T sum{};
    for (const Pending& part : *parts_) sum += part.get();
    return sum;
  }
  /// Returns the same value in other memory: `copy` maps the pointer of each piece that a device writes to another
  /// pointer.
  template <class Copy>
  [[nodiscard]] Pending copied(Copy copy) const {
    if (promised_) return promised_->copied(copy);
    if (later_) return Pending(std::shared_ptr<const T>(copy(*later_)));
    if (!parts_) return *this;
    std::vector<Pending> parts;
    for (const Pending& part : *parts_) parts.push_back(part.copied(copy));
    return Pending(std::move(parts));
  }
  operator T() const { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  T known_{};
  std::shared_ptr<const T> later_;
  std::shared_ptr<const Pending> promised_;
  std::shared_ptr<const std::vector<Pending>> parts_;  // never changed, so that copies share them
};

/// A sum of pending values, formed in the order of add(). Converts to the plain sum.
class PendingSum {
 public:
  void add(Pending<double> value) { values_.push_back(std::move(value)); }
  [[nodiscard]] double get() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return sum;
  }
  operator double() const { return get(); }  // NOLINT(google-explicit-constructor): as Pending

 private:
  std::vector<Pending<double>> values_;
};

}  // namespace maestro
