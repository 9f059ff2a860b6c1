// SPDX-License-Identifier: Apache-2.0
// An observer whose functions are Python's: maestro.App(..., on_step=..., on_validation=...).
#pragma once

#include <nanobind/nanobind.h>
#include <maestro/app.hpp>
#include <maestro/observer.hpp>

#include "apps/python/python_calls.hpp"

namespace maestro::python {

/// Calls step(row) for each finished training step, and event(row) for each event; rows are dictionaries, as the lines
/// of the record. What Python raises ends the calls, with a warning (OV-1).
class PythonObserver final : public RunObserver {
 public:
  PythonObserver(SharedObject step, SharedObject event) : step_(std::move(step)), event_(std::move(event)) {}
  void step(std::string_view line) override { call(step_, line); }
  void event(std::string_view line) override { call(event_, line); }

 private:
  static void call(const SharedObject& function, std::string_view line) {
    with_python("an observer in Python", [&] {
      if (!function.get().is_none()) {
        function.get()(nanobind::module_::import_("json").attr("loads")(nanobind::str(line.data(), line.size())));
      }
    });
  }

  SharedObject step_;
  SharedObject event_;
};

}  // namespace maestro::python
