// SPDX-License-Identifier: Apache-2.0
// All of every room in a single program: two rooms that define the same name do not link. A test of a single room, or a
// program that needs only one of the two, would never show that.
int main() {
  return 0;
}
