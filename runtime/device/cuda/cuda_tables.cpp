// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cuda_tables.hpp"

#include "runtime/device/cuda/repeating_table.hpp"
#include "runtime/ops/cuda/cuda_operator_table.hpp"

namespace maestro::cuda {

TableMaker cuda_tables() {
  return [](const TableSite& site) -> std::unique_ptr<OperatorTable> {
    CudaTableOptions options;
    options.device = site.device;
    options.stream = site.stream;
    options.multiprocessors = site.multiprocessors;
    options.memory = &site.memory;
    options.pinned = &site.pinned;
    options.report = site.report;
    options.deterministic = site.deterministic;
    options.tune = !site.deterministic;  // the fastest algorithm differs from run to run
    auto table = std::make_unique<CudaOperatorTable>(options);
    if (site.use_of_graphs == GraphUse::never) return table;
    const std::size_t most_plain = graph_options(site.use_of_graphs).most_plain;
    return std::make_unique<RepeatingTable>(std::move(table),
                                            RepeatingSite{site.graphs, site.pinned, site.stream, most_plain});
  };
}

}  // namespace maestro::cuda
