// SPDX-License-Identifier: Apache-2.0
// Composes a training app from sources, sections and edges. An app runs once; all processes of a job run the same code.
//
//   App app(job, options, console);
//   auto data    = app.source("corpus");
//   auto teacher = app.section("teacher", "decoder_trunk").forward_only().micro_batch(8);
//   auto student = app.section("student", "distilled_decoder").micro_batch(4);
//   app.connect(data.port("tokens"), teacher.port("tokens"));
//   ...
//   return app.run().status;
//
// Values set by the builders are defaults; the section's table in the job file overrides them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/job/run_options.hpp"
#include "actors/run/record/run_result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/corpus_registry.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/run_observer.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "sections/registry.hpp"

namespace maestro {

struct PortRef {
  std::string section;
  std::string port;
};

/// A section of an app while it is composed.
class SectionBuilder {
 public:
  /// Freezes the section: it has neither backward passes nor an optimizer, and runs ahead as far as credits allow.
  SectionBuilder& forward_only() {
    role_ = Role::frozen;
    return *this;
  }
  SectionBuilder& replicas(std::int64_t count) {
    defaults_.replicas = count;
    return *this;
  }
  SectionBuilder& micro_batch(std::int64_t samples) {
    defaults_.micro_batch = samples;
    return *this;
  }
  SectionBuilder& optimizer(const OptimizerConfig& optimizer) {
    defaults_.optimizer = optimizer;
    return *this;
  }
  /// States that the section reads samples as `reader` does, whose model for images is in `folder`. If the model's
  /// image processor is not the data's, source ports give its images.
  SectionBuilder& reads_as(std::string reader, std::string folder) {
    reader_ = std::move(reader);
    folder_ = std::move(folder);
    return *this;
  }
  /// States that the section reads the sounds of data with images and sounds, as if they were the images.
  SectionBuilder& hears() {
    hears_ = true;
    return *this;
  }
  /// Lets other passes run between the two passes of a micro-batch, even if no gradient returns to the section.
  SectionBuilder& splits_passes() {
    splits_ = true;
    return *this;
  }
  /// Runs the section only for samples of these sources (Corpus::source).
  SectionBuilder& only_for(SourceSet sources) {
    sources_ = std::move(sources);
    return *this;
  }
  [[nodiscard]] PortRef port(std::string name) const { return {name_, std::move(name)}; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class App;
  friend class EdgeCheck;
  friend class JobResolver;
  std::string name_;
  std::string type_;  // type in the registry; empty if `factory_` is given
  SectionFactory factory_;
  Role role_ = Role::trained;  // default; the job may freeze the section
  SectionConfig defaults_;
  SourceSet sources_;
  std::string reader_;  // empty: reads the data as they are
  std::string folder_;
  bool hears_ = false;
  bool splits_ = false;
};

/// An edge of an app while it is composed.
struct ComposedEdge {
  PortRef from;
  PortRef to;
  std::string key;          ///< top-level key of the job file that names the edge; empty: the app names it
  bool if_present = false;  ///< left out unless both sections have the ports
};

/// An app after main() has composed it and before it is resolved.
struct Composition {
  JobDocument document;
  RunOptions options;
  SectionRegistry registry;
  CorpusRegistry corpora;                    ///< corpora in plug-ins
  ObserverRegistry observers;                ///< observers in plug-ins
  std::vector<NamedObserver> own_observers;  ///< observers of the app
  std::shared_ptr<const Corpus> corpus;      ///< corpus that the app provides; null: [data] describes it
  std::shared_ptr<const Corpus> opened;      ///< corpus of [data] from an earlier plan; null: not opened yet
  /// Returns the milliseconds of a sample's passes on an emulated device; empty: the sections' FLOP models.
  std::function<PassCost(std::string_view section, const SampleRef& sample)> costs;
  std::size_t stage = 0;                ///< index of the job's stage that is resolved
  std::deque<SectionBuilder> builders;  // deque: references stay valid for the composing code
  std::vector<ComposedEdge> edges;
};

/// Checks edges while an app is composed, before its data are opened. Builds each section that an edge names, and keeps
/// its ports until forget().
class EdgeCheck {
 public:
  /// Throws JobError for a port that does not exist, with the nearest name, and for ports that do not fit. Accepts a
  /// section whose table is incomplete, and columns that depend on data: run() checks them.
  void check(const Composition& app, const PortRef& from, const PortRef& to);
  /// Called after a key has changed.
  void forget() { nodes_.clear(); }

 private:
  [[nodiscard]] const std::optional<GraphNode>& node_of(const Composition& app, const std::string& section);
  /// Sets the node's layout, too.
  [[nodiscard]] static Ports ports_of(const Composition& app, const SectionBuilder& builder, GraphNode& node);

  std::map<std::string, std::optional<GraphNode>> nodes_;  // by section; none: its ports are unknown
};

struct ResolvedJob;
struct RunMemory;

/// Not thread-safe; used by main.
class App {
 public:
  /// Loads the plug-ins that the job names. Throws JobError.
  App(JobDocument job, RunOptions options, Console& console);

  /// Returns the section types that job files may name; register further types before run().
  [[nodiscard]] SectionRegistry& registry() { return composed_.registry; }
  /// Overrides a key of the job, "student.lr=1e-4", as `--set` does. Throws JobError.
  void set(const std::string& setting) {
    composed_.document.override_with(setting);
    edge_check_.forget();
  }
  /// Adds an observer next to the observers in the job file.
  void observe(NamedObserver observer) { composed_.own_observers.push_back(std::move(observer)); }
  /// Returns a table of the job file, for settings of the app.
  [[nodiscard]] JobTable table(std::string_view name) const { return composed_.document.root().table(name); }

  /// Returns the top level of the job file.
  [[nodiscard]] JobTable job() const { return composed_.document.root(); }

  /// Returns the job file with all overrides.
  [[nodiscard]] const JobDocument& document() const { return composed_.document; }

  /// Returns whether the job file has a table with this name.
  [[nodiscard]] bool has(std::string_view name) const { return composed_.document.root().has(name); }

  /// Adds the text source described by [data]: ports tokens and targets.
  SectionBuilder& source(std::string name);
  /// Adds a source with a corpus that the app provides.
  SectionBuilder& source(std::string name, std::shared_ptr<const Corpus> corpus);
  /// Sets the milliseconds of a sample's passes on an emulated device, instead of the sections' FLOP models.
  void set_costs(std::function<PassCost(std::string_view section, const SampleRef& sample)> milliseconds) {
    composed_.costs = std::move(milliseconds);
  }
  /// Adds a section of a registered type, read from its table [name]; `type` in the table overrides `type`.
  SectionBuilder& section(std::string name, std::string type);
  /// Adds a section of type T, which has T(const SectionContext&, const T::Options&) and T::Options::read(JobTable).
  template <class T>
  SectionBuilder& section(std::string name) {
    auto options = T::Options::read(table(name));
    return section(std::move(name), SectionFactory([options](const SectionContext& context) {
                     return std::make_unique<T>(context, options);
                   }));
  }
  SectionBuilder& section(std::string name, SectionFactory factory);
  /// Returns names and types of the sections composed so far, without sources and sections without a type.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> section_types() const;
  /// Connects an output port to an input port. Errors begin with the place of `key` if the job file names the edge.
  void connect(PortRef from, PortRef to, std::string key = {}) {
    composed_.edges.push_back({std::move(from), std::move(to), std::move(key)});
  }
  /// Connects two ports, or neither if one of the two sections lacks its port in this job.
  void connect_where_present(PortRef from, PortRef to) {
    composed_.edges.push_back({std::move(from), std::move(to), {}, true});
  }
  /// Connects as connect(), and checks the edge now instead of at run().
  void connect_checked(PortRef from, PortRef to) {
    edge_check_.check(composed_, from, to);
    connect(std::move(from), std::move(to));
  }

  /// Returns the number of processes at the start of the run.
  [[nodiscard]] std::int64_t processes() const { return composed_.options.processes; }
  /// Returns the number of CPU devices per host.
  [[nodiscard]] std::int64_t cpu_devices() const;
  /// Sets the default to one replica for every section, for job files without a number.
  void default_to_one_replica() {
    for (SectionBuilder& builder : composed_.builders) builder.replicas(1);
  }
  /// Returns this app with more settings, as `set()` takes them, and with other options and console, for plans and
  /// trial runs: in this process alone, without the observers that observe() has added. Throws JobError.
  [[nodiscard]] App with(const std::vector<std::string>& settings, RunOptions options, Console& console) const;
  /// Reuses the corpus from the plan of a job with the same [data]; null: opens the corpus.
  void reuse_corpus(std::shared_ptr<const Corpus> corpus) { composed_.opened = std::move(corpus); }
  /// Checks everything and returns the plan of the job, without starting anything: for the stage of the checkpoint that
  /// it resumes from, else for the last stage, which trains the most sections. Throws JobError.
  [[nodiscard]] ResolvedJob plan();
  /// Checks everything, then runs the job to its end. Throws JobError for invalid input, before anything starts.
  RunResult run();

 private:
  /// Returns nothing if another start follows. Resolves `plan` at the first call of a stage.
  std::optional<RunResult> run_once(std::optional<ResolvedJob>& plan, RunMemory& memory);
  /// Resolves the job for the stage that the run begins or goes on with, and checks the stages after it.
  [[nodiscard]] ResolvedJob resolve_stage(const RunMemory& memory);
  Composition composed_;
  EdgeCheck edge_check_;
  Console* console_;
};

}  // namespace maestro
