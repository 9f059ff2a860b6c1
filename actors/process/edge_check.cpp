// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "actors/job/resolved_job.hpp"
#include "actors/job/section_context.hpp"
#include "actors/process/app.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/corpus_section.hpp"

namespace maestro {

namespace {

constexpr std::int64_t unknown_columns = 0;

/// Two shapes of data that every section accepts. Ports that differ for them depend on data.
std::vector<DataShape> small_shapes(const Corpus* corpus) {
  std::vector<DataShape> shapes(2);
  for (std::int64_t at = 0; at < 2; ++at) {
    DataShape& shape = shapes[static_cast<std::size_t>(at)];
    shape.sequence = 2 + at;
    shape.vocabulary = corpus != nullptr ? corpus->vocabulary() : 2 + at;
    shape.marks = corpus == nullptr || corpus->has_marks();
    shape.patch_columns = corpus != nullptr ? corpus->patch_columns() : 3 * (1 + 3 * at);
  }
  return shapes;
}

Ports source_ports(const std::shared_ptr<const Corpus>& corpus) {
  if (corpus) return CorpusSection(corpus, std::make_shared<SampleStore>()).ports();
  Ports ports;
  ports.outputs = {{"tokens", DType::i32, 1, false, false},
                   {"targets", DType::i32, 1, false, false},
                   {"sampled", DType::f32, 1, false, false},
                   {"pixels", DType::f32, unknown_columns, false, false, Axis::patches},
                   {"places", DType::i32, unknown_columns, false, false, Axis::patches}};
  return ports;
}

/// Returns a section's ports, with unknown columns if they differ for the shapes.
Ports ports_for(const std::vector<DataShape>& shapes, const std::function<Ports(const DataShape&)>& ports_of) {
  Ports ports = ports_of(shapes.front());
  const Ports others = ports_of(shapes.back());
  for (auto [some, other] : {std::pair{&ports.inputs, &others.inputs}, std::pair{&ports.outputs, &others.outputs}}) {
    for (std::size_t at = 0; at < std::min(some->size(), other->size()); ++at) {
      if ((*some)[at].columns != (*other)[at].columns) (*some)[at].columns = unknown_columns;
    }
  }
  return ports;
}

Port* find(std::vector<Port>& ports, const std::string& name) {
  const auto found = std::ranges::find(ports, name, &Port::name);
  return found == ports.end() ? nullptr : &*found;
}

/// Lets ports with unknown columns fit.
void assume_columns(Port* one, Port* other) {
  if (one == nullptr || other == nullptr) return;
  if (one->columns == unknown_columns) one->columns = other->columns;
  if (other->columns == unknown_columns) other->columns = one->columns;
}

}  // namespace

Ports EdgeCheck::ports_of(const Composition& app, const SectionBuilder& builder, GraphNode& node) {
  // A copy of the job: reading it neither marks keys nor keeps defaults.
  const JobDocument document = JobDocument::parse(app.document.to_toml(), "the job");
  const JobTable settings = document.root().table(node.name);
  const Training training = node.role == Role::trained ? Training::optimized : Training::none;
  PlannedSection planned;
  planned.config = read_section(settings, node.name, builder.defaults_, training);
  node.layout = {planned.config.tensor, planned.config.context, planned.config.expert};
  const cpu::CpuOperatorTable ops;
  SectionContext context = planned_context(ResolvedJob(), planned, node);
  context.meta = true;
  context.ops = &ops;
  context.for_cuda = std::ranges::any_of(planned.config.devices, &DeviceId::is_cuda);
  context.parallel.layout = node.layout;
  if (builder.factory_) return builder.factory_(context)->ports();
  return ports_for(small_shapes(app.corpus.get()), [&](const DataShape& data) {
    const SectionTable table{node.name, settings, document.root(), data, app.corpus};
    return app.registry.build(read_type(settings, builder.type_), table)(context)->ports();
  });
}

const std::optional<GraphNode>& EdgeCheck::node_of(const Composition& app, const std::string& section) {
  if (const auto known = nodes_.find(section); known != nodes_.end()) return known->second;
  std::vector<std::string> names;
  for (const SectionBuilder& each : app.builders) names.push_back(each.name_);
  const auto at = std::ranges::find(names, section);
  if (at == names.end()) throw JobError("this app has no section '" + section + "'" + nearest_text(section, names));
  const SectionBuilder& builder = app.builders[static_cast<std::size_t>(at - names.begin())];
  GraphNode node;
  node.name = section;
  node.role = builder.role_;
  try {
    node.ports = node.role == Role::source ? source_ports(app.corpus) : ports_of(app, builder, node);
  } catch (const std::exception&) {  // keys may follow; run() reports the error if they do not
    return nodes_[section] = std::nullopt;
  }
  return nodes_[section] = node;
}

void EdgeCheck::check(const Composition& app, const PortRef& from, const PortRef& to) {
  std::optional<GraphNode> producer = node_of(app, from.section);
  std::optional<GraphNode> consumer = node_of(app, to.section);
  if (!producer || !consumer) return;
  for (const ComposedEdge& edge : app.edges) {
    if (edge.to.section != to.section || edge.to.port != to.port) continue;
    throw JobError("input " + to.section + "." + to.port + " is connected twice, to " + edge.from.section + "." +
                   edge.from.port + " and " + from.section + "." + from.port);
  }
  assume_columns(find(producer->ports.outputs, from.port), find(consumer->ports.inputs, to.port));
  SectionGraph graph;
  graph.add(*std::move(producer));
  if (from.section != to.section) graph.add(*std::move(consumer));
  (void)graph.connect(from.section, from.port, to.section, to.port);
}

}  // namespace maestro
