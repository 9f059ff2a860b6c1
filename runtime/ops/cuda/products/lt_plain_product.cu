// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/products/lt_plain_product.cuh"

namespace maestro::cuda {

void plain_product(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers) {
  assert(plan.epilogue == ProductEpilogue::none || plan.epilogue == ProductEpilogue::bias);
  assert(plan.a.dtype == plan.b.dtype);
  if (plan.a.dtype == DType::f32) return launch_plain_product<float, float>(at, plan, pointers);
  if (plan.d.dtype == DType::f32) return launch_plain_product<bfloat16, float>(at, plan, pointers);
  launch_plain_product<bfloat16, bfloat16>(at, plan, pointers);
}

void add_bias(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers) {
  if (plan.d.dtype == DType::f32) return launch_add_bias<float>(at, plan, pointers);
  launch_add_bias<bfloat16>(at, plan, pointers);
}

}  // namespace maestro::cuda
