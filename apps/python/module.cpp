// SPDX-License-Identifier: Apache-2.0
// The extension module maestro._core: apps composed and run from Python. The names that users see are in
// maestro/__init__.py.
#include <signal.h>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <cmath>
#include <iostream>
#include <maestro/app.hpp>
#include <maestro/plan.hpp>
#include <map>
#include <sstream>

#include "apps/python/python_corpus.hpp"
#include "apps/python/python_observer.hpp"
#include "apps/python/python_section.hpp"

namespace maestro::python {

namespace nb = nanobind;

namespace {

/// Restores the interpreter's signal handlers, which prepare_signals() replaces.
class SavedSignals {
 public:
  SavedSignals() {
    for (const int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU, SIGPIPE, SIGXFSZ, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE}) {
      sigaction(signal, nullptr, &saved_[signal]);
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
  }
  ~SavedSignals() {
    for (const auto& [signal, action] : saved_) sigaction(signal, &action, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SavedSignals(const SavedSignals&) = delete;
  SavedSignals& operator=(const SavedSignals&) = delete;

 private:
  std::map<int, struct sigaction> saved_;
  sigset_t mask_{};
};

/// Returns a run's options from their names in Python, which has already refused unknown names.
RunOptions options_of(const nb::dict& given) {
  RunOptions options;
  options.joins = true;
  const auto take = [&given](const char* name, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    if (!given.contains(name)) return;
    if constexpr (std::is_same_v<Value, std::filesystem::path>) {
      value = nb::cast<std::string>(given[name]);
    } else {
      value = nb::cast<Value>(given[name]);
    }
  };
  take("processes", options.processes);
  take("cpu_devices", options.cpu_devices);
  take("report", options.report);
  take("trace", options.trace);
  take("tensorboard", options.tensorboard);
  take("resume", options.resume);
  take("fresh", options.fresh);
  take("new_data", options.new_data);
  take("listen", options.listen);
  take("keys", options.keys);
  take("control", options.control);
  take("pause_after", options.pause_after);
  take("http", options.http);
  take("check_only", options.check_only);
  take("quiet", options.quiet);
  take("log_format", options.log_format);
  take("command", options.command);
  return options;
}

/// Returns a plan's options, all by their names in Python.
AppPlanOptions plan_options_of(const nb::dict& given) {
  AppPlanOptions options;
  options.varied = nb::cast<std::vector<std::string>>(given["vary"]);
  options.profile = nb::cast<std::string>(given["profile"]);
  options.cpu_devices = nb::cast<std::int64_t>(given["cpu_devices"]);
  options.gpus = nb::cast<std::int64_t>(given["devices"]);
  options.measure_ms = nb::cast<std::int64_t>(given["measure_ms"]);
  options.top = nb::cast<std::int64_t>(given["top"]);
  options.trials = nb::cast<std::int64_t>(given["trials"]);
  options.steps = nb::cast<std::int64_t>(given["steps"]);
  return options;
}

/// Returns the value of a key that a constructor in Python takes, of the kind that it states; without a kind, of the
/// value's own type. Throws JobError.
nb::object setting(const JobTable& table, const std::string& key, const std::string& kind) {
  if (kind == "int") return nb::int_(table.integer(key, 0));
  if (kind == "float") return nb::float_(table.number(key, 0));
  if (kind == "bool") return nb::bool_(table.flag(key, false));
  if (kind == "str" || table.holds_text(key)) return nb::cast(table.text(key, ""));
  if (table.holds_list(key)) {
    try {
      return nb::cast(table.texts(key, {}));
    } catch (const JobError&) {  // a list of numbers
      return nb::cast(table.numbers(key));
    }
  }
  try {
    return nb::bool_(table.flag(key, false));
  } catch (const JobError&) {  // a number
    const double number = table.number(key, 0);
    if (number == std::floor(number) && std::abs(number) < 0x1p53) return nb::int_(static_cast<std::int64_t>(number));
    return nb::float_(number);
  }
}

/// An app with the console that it prints to.
class PythonApp {
 public:
  PythonApp(JobDocument job, const nb::dict& options)
      : console_(standard_streams()), app_(std::move(job), options_of(options), console_) {
    if (options.contains("log_format") && nb::cast<std::string>(options["log_format"]) == "json") console_.use_json();
  }
  App& app() { return app_; }
  SectionBuilder& section_in_python(std::string name, nb::object open) {
    const PythonSectionType& type = types_.emplace_back(std::move(open), app_.processes() <= 1);
    return app_.section(std::move(name), [type](const SectionContext& context) { return type.create(context); });
  }
  RunResult run() {
    RaisedExceptions::of_process().clear();
    const SavedSignals saved;
    const nb::gil_scoped_release unlocked;
    prepare_signals();
    RunResult result = app_.run();
    console_.finish();
    return result;
  }
  AppPlan plan(const nb::dict& given, bool quiet);

 private:
  /// Lets meta sections of a plan share replicas.
  class Planning {
   public:
    explicit Planning(const std::vector<PythonSectionType>& types) : types_(types) { share(true); }
    ~Planning() { share(false); }
    Planning(const Planning&) = delete;
    Planning& operator=(const Planning&) = delete;

   private:
    void share(bool on) {
      for (const PythonSectionType& type : types_) type.share_described(on);
    }
    const std::vector<PythonSectionType>& types_;
  };

  Console console_;
  App app_;
  std::vector<PythonSectionType> types_;
};

AppPlan PythonApp::plan(const nb::dict& given, bool quiet) {
  if (app_.processes() > 1) {
    throw JobError("App.plan() measures in one process, and this app has " + std::to_string(app_.processes()) +
                   ": plan in a script of its own with processes=1, and give its layout to the app as settings");
  }
  const AppPlanOptions options = plan_options_of(given);
  const nb::object check = given["check"];
  RaisedExceptions::of_process().clear();
  const SavedSignals saved;
  const nb::gil_scoped_release unlocked;
  const Planning planning(types_);
  std::ostringstream unseen;
  Console warnings({unseen, std::cerr, false, {}});
  const auto compose = [&](const std::vector<std::string>& settings, RunOptions run, Console& console) {
    {
      const nb::gil_scoped_acquire locked;
      check();  // raises an interrupt
    }
    if (!run.check_only) prepare_signals();  // a trial run
    return app_.with(settings, std::move(run), console);
  };
  return plan_app(compose, options, quiet ? warnings : console_);
}

void bind_result(nb::module_& module) {
  nb::class_<RunResult>(module, "RunResult")
      .def_ro("status", &RunResult::status, "0 if the run ended in order")
      .def_ro("error", &RunResult::error, "message of a failed run; empty: it has not failed")
      .def_ro("interrupted", &RunResult::interrupted, "ended by a signal or `maestro stop`; `resume` continues it")
      .def_ro("losses", &RunResult::losses, "{section: loss in its last step}")
      .def_ro("validation", &RunResult::validation, "{section: {figure: value}} from the last validation")
      .def_ro("last_step", &RunResult::last_step)
      .def_ro("_steps", &RunResult::steps)  // the job's steps; 0 in a process other than rank 0
      .def_ro("samples_per_s", &RunResult::samples_per_s)
      .def_ro("tokens_per_s", &RunResult::tokens_per_s)
      .def_ro("wall_seconds", &RunResult::wall_seconds)
      .def_ro("max_rss_mb", &RunResult::max_rss_mb)
      .def_ro("recoveries", &RunResult::recoveries, "a line for each")
      .def_ro("left_out", &RunResult::left_out, "samples that could not be read, with the reason")
      .def_ro("weights", &RunResult::weights, "{section: folder of its trained weights}")
      .def_ro("models", &RunResult::models, "{section: Hugging Face folder of its export}")
      .def_ro("record", &RunResult::record, "folder of the run's record")
      .def_ro("resume", &RunResult::resume, "what `resume` takes to continue the run; empty: no checkpoint")
      .def_ro("checkpoint", &RunResult::checkpoint)
      .def_ro("report", &RunResult::report)
      .def_ro("trace", &RunResult::trace);
}

void bind_plan(nb::module_& module) {
  nb::class_<PlannedLayout>(module, "PlannedLayout")
      .def_ro("step_ms", &PlannedLayout::step_ms)
      .def_ro("samples_per_s", &PlannedLayout::samples_per_s)
      .def_ro("tried_step_ms", &PlannedLayout::tried_step_ms)
      .def_ro("bytes", &PlannedLayout::bytes)
      .def_ro("texts", &PlannedLayout::texts)
      .def_ro("settings", &PlannedLayout::settings)
      .def_ro("prediction", &PlannedLayout::prediction);
  nb::class_<AppPlan>(module, "AppPlan")
      .def_ro("layouts", &AppPlan::layouts)
      .def_ro("chosen", &AppPlan::chosen)
      .def_ro("bound_ms", &AppPlan::bound_ms)
      .def_ro("alternatives", &AppPlan::alternatives)
      .def_ro("text", &AppPlan::text);
  module.def("planned_keys", &planned_keys);
}

void bind_sections(nb::module_& module) {
  nb::class_<PortRef>(module, "Port", "An input or output of a section.")
      .def_ro("section", &PortRef::section)
      .def_ro("name", &PortRef::port)
      .def("__repr__", [](const PortRef& port) { return port.section + "." + port.port; });
  nb::class_<SectionBuilder>(module, "SectionBuilder")
      .def("forward_only", [](SectionBuilder& section) { section.forward_only(); })
      .def("replicas", [](SectionBuilder& section, std::int64_t count) { section.replicas(count); })
      .def("micro_batch", [](SectionBuilder& section, std::int64_t samples) { section.micro_batch(samples); })
      .def("port", &SectionBuilder::port, nb::arg("name"))
      .def_prop_ro("name", &SectionBuilder::name);
}

void bind_app(nb::module_& module) {
  nb::class_<PythonApp>(module, "App")
      .def_static(
          "of_file",
          [](const std::string& path, const std::vector<std::string>& settings, const nb::dict& options) {
            return new PythonApp(JobDocument::load(path, settings), options);
          },
          nb::rv_policy::take_ownership)
      .def_static(
          "of_text",
          [](std::string text, std::string name, const std::vector<std::string>& settings, const nb::dict& options) {
            return new PythonApp(JobDocument::parse(std::move(text), std::move(name), settings), options);
          },
          nb::rv_policy::take_ownership)
      .def(
          "source",
          [](PythonApp& self, std::string name, nb::object corpus) -> SectionBuilder& {
            if (corpus.is_none()) return self.app().source(std::move(name));
            return self.app().source(std::move(name), std::make_shared<PythonCorpus>(std::move(corpus)));
          },
          nb::arg("name"), nb::arg("corpus").none() = nb::none(), nb::rv_policy::reference_internal)
      .def(
          "section",
          [](PythonApp& self, std::string name, std::string type) -> SectionBuilder& {
            return self.app().section(std::move(name), std::move(type));
          },
          nb::arg("name"), nb::arg("type"), nb::rv_policy::reference_internal)
      .def("set", [](PythonApp& self, const std::string& setting) { self.app().set(setting); })
      .def("check_type", [](PythonApp& self, const std::string& type,
                            const std::string& section) { self.app().registry().check(type, section); })
      .def(
          "observe",
          [](PythonApp& self, nb::object step, nb::object event) {
            self.app().observe(
                {"python", [step = SharedObject(std::move(step)), event = SharedObject(std::move(event))] {
                   return std::make_unique<PythonObserver>(step, event);
                 }});
          },
          nb::arg("step").none(), nb::arg("event").none())
      .def("keys", [](PythonApp& self, const std::string& table) { return self.app().table(table).keys(); })
      .def("settings",
           [](PythonApp& self, const std::string& table, const std::vector<std::pair<std::string, std::string>>& keys) {
             nb::dict settings;
             for (const auto& [key, kind] : keys) settings[key.c_str()] = setting(self.app().table(table), key, kind);
             return settings;
           })
      .def(
          "section_in_python",
          [](PythonApp& self, std::string name, nb::object open) -> SectionBuilder& {
            return self.section_in_python(std::move(name), std::move(open));
          },
          nb::arg("name"), nb::arg("open"), nb::rv_policy::reference_internal)
      .def(
          "connect",
          [](PythonApp& self, PortRef from, PortRef to) { self.app().connect_checked(std::move(from), std::move(to)); },
          nb::arg("output"), nb::arg("input"))
      .def("compose_graph", [](PythonApp& self) { compose_graph(self.app()); })
      .def("app_name", [](PythonApp& self) { return self.app().job().text("app", ""); })
      .def("cause", [](PythonApp&, const std::string& error) { return RaisedExceptions::of_process().cause_of(error); })
      .def("plan", &PythonApp::plan, nb::arg("options"), nb::arg("quiet"))
      .def("run", &PythonApp::run);
}

}  // namespace

NB_MODULE(_core, module) {
  // An app holds its corpus, whose class holds the names in its script, and so the app. The interpreter sees only a
  // part of this cycle, so it lives until the process ends.
  nb::set_leak_warnings(false);
  nb::exception<JobError>(module, "JobError", PyExc_ValueError);
  bind_result(module);
  bind_plan(module);
  bind_sections(module);
  bind_app(module);
}

}  // namespace maestro::python
