// SPDX-License-Identifier: Apache-2.0
#include "sections/pass_probe.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "runtime/files/checksum.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro {

namespace {

constexpr std::size_t code_digits = 8;
constexpr double least_row_flops = 1e3;  // of a complete pass, since CallPrices takes less for equal work

}  // namespace

double sum_ms(const std::vector<ObservedCall>& calls) {
  double sum = 0;
  for (const ObservedCall& observed : calls) sum += observed.ms;
  return sum;
}

PassProbe::PassProbe(ProbedSection probed, LayoutRank rank, const ProbeSite& site)
    : probed_(std::move(probed)),
      rank_(rank),
      site_(site),
      space_(!site.own_memory),
      table_(make_table()),
      context_(probed_.context) {
  context_.ops = &table_;
  context_.values = InitialValues::later;
  context_.parallel = make_groups();
  if (whole()) {
    const Section& section = *probed_.described;
    code_ = checksum_of(section.config_json() + section.description()).substr(0, code_digits);
  }
  std::shared_ptr<Section> section = build();
  parameter_bytes_ = space_.held();
  runner_ = std::make_unique<SectionRunner>(std::move(section), context_, probed_.optimizer, 1);
  calls_.clear();
}

ObservedTable PassProbe::make_table() {
  TableObserver observer{[this](const OperatorCall& call, double ms) { called(call, ms); }, site_.now};
  if (!dry()) return ObservedTable(*site_.table, std::move(observer));
  const bool on_gpu = probed_.context.for_cuda || !space_.host();
  return ObservedTable(space_, on_gpu || cpu::best_products_pack_once(), std::move(observer));
}

void PassProbe::called(OperatorCall call, double ms) {
  calls_.push_back({std::move(call), ms});
  if (timer_ != nullptr) timer_->mark();
}

ParallelContext PassProbe::make_groups() {
  const auto observer = [this](const GroupCall& group, double ms) {
    if (table_.running() || whole()) return;
    OperatorCall call{std::string(group.name), group.dtype, {group.bytes, group.ranks}, 0};
    call.bytes = static_cast<double>(group.bytes);
    called(std::move(call), ms);
  };
  ParallelContext parallel{layout(), static_cast<std::int64_t>(rank_.value())};
  for (const RankGroup& group : rank_groups(parallel.layout)) {
    const std::int64_t at = (parallel.rank - group.first) / group.stride;
    const bool in_group = at >= 0 && at < group.size && group.first + at * group.stride == parallel.rank;
    if (!in_group) continue;
    groups_.push_back(dry() ? std::make_unique<ObservedGroup>(group.size, at, observer)
                            : std::make_unique<ObservedGroup>(*(site_.parallel.*group.member), observer, site_.now));
    parallel.*group.member = groups_.back().get();
  }
  return parallel;
}

std::shared_ptr<Section> PassProbe::build() {
  SectionContext context = context_;
  context.meta = dry() && whole();  // only its parameters are used
  std::shared_ptr<Section> section = probed_.factory(context);
  Parameters& own = section->parameters();
  if (context.meta) own.allocate(context.trained, table_.memory(), InitialValues::later, context.moments);
  const auto replicas = static_cast<std::size_t>(node().replicas);
  if (probed_.zero && replicas > 1) {
    own.shard_optimizer_state(shard_range(static_cast<std::size_t>(own.elements()), replicas, 0));
  }
  const bool frozen = !context_.trained && !context_.passes_gradient;
  const bool later = own.values_later();
  if (frozen && later && !context.meta) section->freeze();
  std::set<Parameters*> all{&own, section->weights().parameters};
  for (Parameters* const parameters : all) {
    if (parameters->values_later()) parameters->initialise();  // in a dry pass nothing is drawn
  }
  if (frozen && !later) section->freeze();
  return section;
}

MemorySpace& PassProbe::port_memory(bool of_source) {
  if (!of_source && !table_.memory().host()) return table_.memory();
  return dry() && space_.host() ? static_cast<MemorySpace&>(space_) : host_memory();
}

const Tensor& PassProbe::add(Fed& fed, EdgeId edge, Sharding sharding, const std::string& port,
                             const MicroBatchPlan& batch, MemoryKind of_device) {
  const GraphEdge& joined = probed_.graph->edge(edge);
  const Layout layout = this->layout();
  const auto rank = static_cast<std::int64_t>(rank_.value());
  const std::int64_t rows = layout.rows(sharding, batch.rows(joined.axis, joined.sources), rank).count;
  const Shape shape{rows, layout.columns(sharding, joined.columns, rank).count};
  const bool of_source = probed_.graph->node(joined.from).role == Role::source;
  const std::size_t bytes = Tensor(nullptr, joined.dtype, shape).bytes();
  SpaceMemory& memory = fed.memory.emplace_back(port_memory(of_source), std::max<std::size_t>(bytes, 1));
  PortTensor tensor;
  if (!of_source && !table_.memory().host()) tensor.memory = of_device;
  tensor.port = port;
  tensor.tensor = Tensor(memory.data(), joined.dtype, shape);
  tensor.differentiable = joined.gradient;
  tensor.sources = joined.sources;
  return fed.tensors.emplace_back(std::move(tensor)).tensor;
}

PassProbe::Fed PassProbe::inputs(const MicroBatchPlan& batch) {
  Fed fed;
  for (const EdgeId edge : probed_.graph->inputs(probed_.section)) {
    const GraphEdge& joined = probed_.graph->edge(edge);
    if (batch.rows(joined.axis, joined.sources) == 0) continue;
    const Tensor& own = add(fed, edge, joined.to_sharding, joined.to_port, batch, MemoryKind::peer_device);
    if (probed_.graph->node(joined.from).role != Role::source) continue;
    const Shape shape{batch.rows(joined.axis, joined.sources), joined.columns};
    const SpaceMemory memory(host_memory(), std::max<std::size_t>(Tensor(nullptr, joined.dtype, shape).bytes(), 1));
    const Tensor value(memory.data(), joined.dtype, shape);
    probed_.read(joined.from_port, batch, value);
    const RowRange rows = layout().rows(joined.to_sharding, shape.rows(), rank_.value());
    std::memcpy(own.raw(), value.row_slice(rows.first, rows.count).raw(), own.bytes());
  }
  return fed;
}

PassProbe::Fed PassProbe::outputs(const MicroBatchPlan& batch, bool gradients) {
  Fed fed;
  std::set<std::string> sent;  // a port has a single value for all its edges, and a gradient for each
  for (const EdgeId edge : probed_.graph->outputs(probed_.section)) {
    const GraphEdge& joined = probed_.graph->edge(edge);
    if (batch.rows(joined.axis, joined.sources) == 0) continue;
    if (gradients ? !joined.gradient : !sent.insert(joined.from_port).second) continue;
    const MemoryKind of_device = gradients ? MemoryKind::peer_device : MemoryKind::device;
    add(fed, edge, joined.from_sharding, joined.from_port, batch, of_device);
  }
  return fed;
}

PassProbe::Fed PassProbe::input_gradients(const MicroBatchPlan& batch) {
  Fed fed;
  for (const EdgeId edge : probed_.graph->inputs(probed_.section)) {
    const GraphEdge& joined = probed_.graph->edge(edge);
    if (joined.gradient && batch.rows(joined.axis, joined.sources) > 0) {
      add(fed, edge, joined.to_sharding, joined.to_port, batch, MemoryKind::device);
    }
  }
  return fed;
}

std::pair<std::vector<ObservedCall>, double> PassProbe::observed(const std::function<void()>& work) {
  calls_.clear();
  if (site_.device != nullptr) {
    timer_ = site_.device->timer();
    timer_->mark();
  }
  const double begin_ms = site_.now();
  work();
  double ms = site_.now() - begin_ms;
  if (timer_ != nullptr) {
    complete(*site_.device);
    for (std::size_t at = 0; at < calls_.size(); ++at) calls_[at].ms = timer_->milliseconds(at, at + 1);
    ms = sum_ms(calls_);
    timer_.reset();
  }
  return {std::exchange(calls_, {}), dry() ? 0 : ms};
}

std::vector<double> PassProbe::whole_passes(const MicroBatchPlan& batch, int count) {
  const Fed given = inputs(batch);
  const Fed wanted = outputs(batch, false);
  const bool both = node().runs_backward() && batch.pass == Pass::train;
  const Fed gradients = outputs(batch, both);
  const Fed returned = input_gradients(batch);
  std::vector<double> times;
  table_.observe(false);
  for (int pass = 0; pass < count; ++pass) {
    const std::unique_ptr<WorkTimer> timer = site_.device->timer();
    timer->mark();
    (void)runner_->forward(batch, given.tensors, wanted.tensors);
    if (both) runner_->backward(batch, gradients.tensors, returned.tensors);
    timer->mark();
    complete(*site_.device);
    times.push_back(timer->milliseconds(0, 1));
  }
  table_.observe(true);
  return times;
}

ObservedPasses PassProbe::pass(const MicroBatchPlan& batch) {
  ObservedPasses passes = one_pass(batch);
  // A dry pass stands for all passes of a run, but a device rounds its weights only in the first.
  if (!dry() || passes.whole || !site_.own_memory || std::exchange(warm_, true)) return passes;
  ObservedPasses next = one_pass(batch);
  next.packs = std::move(passes.packs);
  return next;
}

OperatorCall PassProbe::whole_call(const std::string& direction, const MicroBatchPlan& batch) {
  const Layout layout = this->layout();
  const bool keeps = node().runs_backward() && batch.pass == Pass::train;
  SampleShape sum;
  double flops = 0;
  double bytes = 0;
  for (const SampleRef& each : batch.samples) {
    const SampleShape sample = shape_of(each, node().reading);
    const Cost cost = probed_.described->cost(sample);
    flops += direction == "backward" ? 2 * cost.flops + cost.recomputed : cost.flops;
    bytes += (keeps ? cost.bytes : 0) + cost.working;
    sum.tokens += sample.tokens;
    sum.patches += sample.patches;
    sum.visual += sample.visual + sample.heard;
  }
  if (dry()) cost_bytes_ = std::max(cost_bytes_, static_cast<std::size_t>(bytes / static_cast<double>(layout.ranks())));
  OperatorCall call{direction + " " + node().name + " " + code_,
                    context_.precision,
                    {sum.tokens, std::ssize(batch.samples), sum.patches, sum.visual, layout.tensor, layout.context}};
  // A section that states no work has as much as it has rows, so that sizes between measured ones have prices.
  call.flops = std::max(flops / static_cast<double>(layout.ranks()),
                        static_cast<double>(sum.tokens + sum.patches + sum.visual) * least_row_flops);
  return call;
}

std::pair<std::vector<ObservedCall>, double> PassProbe::observed_whole(OperatorCall call,
                                                                       const std::function<void()>& work) {
  table_.observe(false);
  auto seen = observed([&] {
    const double begin_ms = site_.now();
    if (!dry()) work();
    called(std::move(call), dry() ? 0 : site_.now() - begin_ms);
  });
  table_.observe(true);
  return seen;
}

ObservedPasses PassProbe::one_pass(const MicroBatchPlan& batch) {
  ObservedPasses passes;
  passes.whole = whole();
  // Returns the milliseconds without packs.
  const auto run = [&](std::vector<ObservedCall>& calls, const std::function<void()>& work) {
    double ms = 0;
    if (passes.whole) {
      const bool first = &calls == &passes.forward;
      std::tie(calls, ms) = observed_whole(whole_call(first ? "forward" : "backward", batch), work);
      return ms;
    }
    std::tie(calls, ms) = observed(work);
    const auto packs = std::stable_partition(calls.begin(), calls.end(),
                                             [](const ObservedCall& each) { return each.call.op != "pack"; });
    for (auto pack = packs; pack != calls.end(); ++pack) ms -= pack->ms;
    passes.packs.insert(passes.packs.end(), packs, calls.end());
    calls.erase(packs, calls.end());
    return ms;
  };
  const Fed given = inputs(batch);
  const Fed wanted = outputs(batch, false);
  passes.forward_ms = run(passes.forward, [&] { (void)runner_->forward(batch, given.tensors, wanted.tensors); });
  if (!node().runs_backward() || batch.pass != Pass::train) return passes;
  const Fed gradients = outputs(batch, true);
  const Fed returned = input_gradients(batch);
  passes.backward_ms = run(passes.backward, [&] { runner_->backward(batch, gradients.tensors, returned.tensors); });
  return passes;
}

ObservedStepEnd PassProbe::step_end() {
  if (!node().trained()) throw std::logic_error("a section that is not trained has no optimizer");
  ObservedStepEnd end;
  end.add_ranks = observed([&] { runner_->add_over_ranks(); }).first;
  end.norm = observed([&] { (void)runner_->gradient_sum_of_squares(); }).first;
  end.step = observed([&] { runner_->step(StepId(++steps_), 1, 1).value_or_throw(); }).first;
  return end;
}

}  // namespace maestro
