# SPDX-License-Identifier: Apache-2.0
__all__ = ['ttypes', 'constants', 'ServedModule']
