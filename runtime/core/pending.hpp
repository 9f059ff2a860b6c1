// A value that a device writes in the order of its work.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace maestro {

/// Known at once, or read from memory that a device writes: get() may be called when the work that was queued before is
/// complete (Device::finish). Copies refer to the same memory and keep it. Converts from and to the plain value, so
/// that whoever works on a processor need not know of it. The third kind is what `promised` holds when get() is called:
/// whoever made it puts that there when the work is queued.
template <class T>
class Pending {
 public:
  Pending(const T& known) : known_(known) {}  // NOLINT(google-explicit-constructor): see above
  explicit Pending(std::shared_ptr<const T> later) : later_(std::move(later)) {}
  explicit Pending(std::shared_ptr<const Pending> promised) : promised_(std::move(promised)) {}
  [[nodiscard]] const T& get() const {
    if (promised_) return promised_->get();
    return later_ ? *later_ : known_;
  }
  /// Whether get() may be called at any time, and the value stays what it is.
  [[nodiscard]] bool known() const { return promised_ ? promised_->known() : later_ == nullptr; }
  operator const T&() const { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  T known_{};
  std::shared_ptr<const T> later_;
  std::shared_ptr<const Pending> promised_;
};

/// A sum of such values, formed in the order of add(). Converts to the plain sum.
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
