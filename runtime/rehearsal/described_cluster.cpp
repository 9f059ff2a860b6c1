// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/described_cluster.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "runtime/core/input_file.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

namespace {

constexpr double gib = 1 << 30;
constexpr double per_ms_of_giga_per_s = 1e6;
constexpr double per_ms_of_tera_per_s = 1e9;
constexpr double ms_of_us = 1e-3;
constexpr double least_figure = 1e-6;  // in any unit of this file
constexpr double most_figure = 1e12;

/// Returns whether the operator is a matrix product; other operators move bytes. A complete pass of a section, "forward
/// NAME DIGEST", counts as one.
bool is_product(const OperatorCall& call) {
  return call.op.starts_with("linear") || call.op.find("attention") != std::string::npos ||
         call.op.ends_with("_loss") || call.op.find(' ') != std::string::npos;
}

bool is_collective(const OperatorCall& call) {
  static constexpr std::array names{"all_reduce", "all_gather", "reduce_scatter", "exchange"};
  return std::ranges::find(names, call.op) != names.end();
}

double positive(const JobTable& table, std::string_view key) {
  if (!table.has(key)) table.fail(key, "missing; a described cluster needs it");
  return table.number(key, 1, {.min = least_figure, .max = most_figure});
}

DescribedLink link(const JobTable& table, const std::string& name) {
  return {positive(table, name + "_gb_s") * per_ms_of_giga_per_s,
          table.number(name + "_us", 0, {.min = 0, .max = 1e6}) * ms_of_us};
}

DescribedPool device_of(const JobTable& table, const std::string& kind) {
  DescribedPool device;
  device.kind = kind;
  device.memory_bytes = positive(table, "memory_gib") * gib;
  device.bf16_flops_per_ms = positive(table, "tflops_bf16") * per_ms_of_tera_per_s;
  device.fp32_flops_per_ms = positive(table, "tflops_fp32") * per_ms_of_tera_per_s;
  device.memory_bytes_per_ms = positive(table, "memory_gb_s") * per_ms_of_giga_per_s;
  device.launch_ms = table.number("launch_us", 0, {.min = 0, .max = 1e6}) * ms_of_us;
  device.efficiency = table.pairs_or_word("efficiency", {});
  for (std::size_t at = 0; at < device.efficiency.size(); ++at) {
    const auto& [flops, share] = device.efficiency[at];
    const bool rises = at == 0 || flops > device.efficiency[at - 1].first;
    if (!rises || !(flops > 0) || share < least_figure || share > 1) {
      table.fail("efficiency", "expected pairs of rising FLOPs and a share of the peak in (0, 1]");
    }
  }
  return device;
}

DescribedPool pool_of(const JobTable& table, const std::string& name,
                      const std::map<std::string, DescribedPool>& devices) {
  std::vector<std::string> kinds;
  for (const auto& [kind, device] : devices) kinds.push_back(kind);
  if (kinds.size() > 1 && !table.has("kind")) table.fail("kind", "missing; the cluster has several kinds of devices");
  DescribedPool pool = devices.at(table.choice("kind", kinds.front(), kinds));
  pool.name = name;
  pool.hosts = table.integer("count", 1, {1, 100000});
  pool.devices_of_host = table.integer("devices", 1, {1, 1024});
  pool.inside = link(table, "inside");
  pool.network = link(table, "network");
  pool.price_per_hour = table.number("price_per_hour", 0, {.min = 0, .max = 1e9});
  return pool;
}

}  // namespace

DescribedCluster read_cluster(const std::filesystem::path& path) {
  return parse_cluster(read_text(path).value_or_throw(), path.string());
}

DescribedCluster parse_cluster(std::string text, const std::string& name) {
  const JobDocument document = JobDocument::parse(std::move(text), name);
  const JobTable root = document.root();
  DescribedCluster cluster;
  cluster.name = root.text("name", std::filesystem::path(name).stem().string());
  const JobTable kinds = root.table("kinds");
  std::map<std::string, DescribedPool> devices;
  for (const std::string& kind : kinds.keys()) devices[kind] = device_of(kinds.table(kind), kind);
  if (devices.empty()) root.fail("kinds", "missing; a described cluster needs a table [kinds.NAME] of its devices");
  const JobTable hosts = root.table("hosts");
  for (const std::string& pool : hosts.keys()) cluster.pools.push_back(pool_of(hosts.table(pool), pool, devices));
  if (cluster.pools.empty()) root.fail("hosts", "missing; a described cluster needs a table [hosts.NAME]");
  for (const auto& [kind, device] : devices) {
    const bool used = std::ranges::find(cluster.pools, kind, &DescribedPool::kind) != cluster.pools.end();
    if (!used) kinds.fail(kind, "no hosts have devices of this kind");
  }
  if (root.holds_table("between")) {
    const JobTable between = root.table("between");
    cluster.between = DescribedLink{positive(between, "gb_s") * per_ms_of_giga_per_s,
                                    between.number("us", 0, {.min = 0, .max = 1e6}) * ms_of_us};
  }
  document.finish();
  return cluster;
}

std::int64_t DescribedCluster::devices() const {
  std::int64_t sum = 0;
  for (const DescribedPool& pool : pools) sum += pool.devices();
  return sum;
}

bool DescribedCluster::priced() const {
  return std::ranges::all_of(pools, [](const DescribedPool& pool) { return pool.price_per_hour > 0; });
}

double DescribedPrices::efficiency_at(double flops) const {
  const auto& points = pool_.efficiency;
  if (points.empty()) return 1;
  const auto above = std::ranges::lower_bound(points, flops, {}, [](const auto& point) { return point.first; });
  if (above == points.begin()) return points.front().second;
  if (above == points.end()) return points.back().second;
  const auto below = std::prev(above);
  const double share = std::log(flops / below->first) / std::log(above->first / below->first);
  return below->second + share * (above->second - below->second);
}

double DescribedPrices::ms(const OperatorCall& call, PriceSources& sources) const {
  double ms = 0;
  if (is_collective(call)) {
    const auto ranks = static_cast<double>(call.sizes[1]);
    if (ranks < 2) return 0;
    const double ways = call.op == "all_reduce" ? 2 : 1;
    ms = (ranks - 1) * pool_.inside.latency_ms + ways * call.bytes * (ranks - 1) / (ranks * pool_.inside.bytes_per_ms);
  } else {
    const double peak = call.dtype == DType::bf16 ? pool_.bf16_flops_per_ms : pool_.fp32_flops_per_ms;
    const double computed = is_product(call) && call.flops > 0 ? call.flops / (peak * efficiency_at(call.flops)) : 0;
    ms = pool_.launch_ms + std::max(computed, call.bytes / pool_.memory_bytes_per_ms);
  }
  sources.estimated_ms += ms;
  return ms;
}

double DescribedPrices::exchange_ms(double bytes, std::int64_t replicas, std::int64_t devices) const {
  if (replicas < 2) return 0;
  const auto members = static_cast<double>(replicas);
  const std::int64_t near = std::max<std::int64_t>(pool_.devices_of_host / devices, 1);  // replicas of a host
  const double sent = (members - 1) / members * bytes;
  if (replicas <= near) return sent / pool_.inside.bytes_per_ms + pool_.inside.latency_ms;
  const double between = network_bytes_per_ms() * static_cast<double>(near);
  return sent / std::min(pool_.inside.bytes_per_ms, between) + pool_.network.latency_ms;
}

double DescribedPrices::write_ms(double bytes) const {
  return pool_.network.latency_ms + bytes / network_bytes_per_ms();
}

}  // namespace maestro
