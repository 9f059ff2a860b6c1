// SPDX-License-Identifier: Apache-2.0
#include "apps/python/python_calls.hpp"

#include <nanobind/stl/string.h>

namespace maestro::python {

namespace nb = nanobind;

std::string line_of(nb::python_error& problem) {
  std::string line = nb::cast<std::string>(nb::str(problem.type().attr("__name__")));
  const auto text = nb::cast<std::string>(nb::str(problem.value()));
  if (!text.empty()) line += ": " + text.substr(0, text.find('\n'));
  const nb::object frames = nb::module_::import_("traceback").attr("extract_tb")(problem.traceback());
  if (nb::len(frames) == 0) return line;
  const nb::object frame = frames[nb::len(frames) - 1];
  const auto path = nb::cast<std::string>(frame.attr("filename"));
  return line + " (" + path.substr(path.find_last_of('/') + 1) + ":" +
         std::to_string(nb::cast<int>(frame.attr("lineno"))) + ")";
}

RaisedExceptions& RaisedExceptions::of_process() {
  static auto* const exceptions = new RaisedExceptions;  // not destroyed: the interpreter ends first
  return *exceptions;
}

void RaisedExceptions::keep(std::string text, nb::python_error& problem) {
  constexpr std::size_t most = 16;
  if (kept_.size() == most) kept_.pop_back();
  const nb::object exception = nb::borrow(problem.value());
  if (problem.traceback().is_valid()) exception.attr("__traceback__") = problem.traceback();
  kept_.emplace_back(std::move(text), exception);
}

nb::object RaisedExceptions::cause_of(const std::string& error) const {
  for (const auto& [text, exception] : kept_) {
    if (error.find(text) != std::string::npos) return exception;
  }
  return nb::none();
}

}  // namespace maestro::python
