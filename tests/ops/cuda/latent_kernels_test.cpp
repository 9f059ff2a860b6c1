// SPDX-License-Identifier: Apache-2.0
// The heads of latent attention against the CPU's, bit for bit.
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class LatentKernels : public KernelTest {};

TEST_F(LatentKernels, heads_are_laid_out_and_taken_apart_as_on_the_cpu) {
  for (const DType dtype : both_types) {
    for (const bool interleaved : {false, true}) {
      for (const std::int64_t rows : odd_rows) {
        const LatentShape shape{3, 10, 6, 5, interleaved};
        const Shape queries{rows, shape.query_columns()}, keys{rows, shape.key_columns()}, rope{rows, shape.rope_size};
        const Shape packed{rows, 3 * shape.query_columns()};
        const OwnedTensor query = random(dtype, queries), key = random(dtype, keys), turned = random(dtype, rope);
        const OwnedTensor qkv(dtype, packed), dqkv = random(dtype, packed);
        const OwnedTensor dquery(dtype, queries), dkey(dtype, keys), dturned(dtype, rope);
        reference_.run(LatentHeads{query, key, turned, shape, qkv});
        reference_.run(LatentHeadsBackward{dqkv, shape, dquery, dkey, dturned});
        const LatentHeads op{upload(query), upload(key), upload(turned), shape, empty(dtype, packed)};
        const LatentHeadsBackward back{upload(dqkv), shape, empty(dtype, queries), empty(dtype, keys),
                                       empty(dtype, rope)};
        run([&] {
          latent_heads(at_, op);
          latent_heads_backward(at_, back);
        });
        EXPECT_EQ(download(op.qkv), qkv.values());
        EXPECT_EQ(download(back.dqueries), dquery.values());
        EXPECT_EQ(download(back.dkeys), dkey.values());
        EXPECT_EQ(download(back.drope), dturned.values());
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
