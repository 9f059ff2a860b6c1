#include "runtime/device/cuda/cuda_tables.hpp"

#include "runtime/ops/cuda/cuda_operator_table.hpp"

namespace maestro::cuda {

TableMaker cuda_tables() {
  return [](const TableSite& site) {
    CudaTableOptions options;
    options.stream = site.stream;
    options.multiprocessors = site.multiprocessors;
    options.memory = &site.memory;
    options.pinned = &site.pinned;
    options.say = site.say;
    options.deterministic = site.deterministic;
    options.tune = !site.deterministic;  // what is fastest differs from run to run
    return std::make_unique<CudaOperatorTable>(options);
  };
}

}  // namespace maestro::cuda
