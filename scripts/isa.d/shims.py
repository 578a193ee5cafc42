#!/usr/bin/env python3
"""shims.py MESA: what the no-op kernel drivers of Mesa 25.0 lack for the user drivers of Mesa 26.

Edits the sources at MESA in place; a second run changes nothing. Stops when a place to edit is not found.
"""

import re
import sys

root = sys.argv[1]


def edit(path, *pairs):
    """Replaces the first `old` by `new`, for each pair that has not been replaced yet."""
    path = f"{root}/{path}"
    with open(path) as f:
        text = f.read()
    for old, new in pairs:
        if new in text:
            continue
        if old not in text:
            sys.exit(f"shims: {path} has no {old!r}")
        text = text.replace(old, new, 1)
    with open(path, "w") as f:
        f.write(text)


# Turnip turns VM_BIND on with a parameter that this shim does not know, and then uses it
edit(
    "src/freedreno/drm-shim/freedreno_noop.c",
    (
        "static int\nmsm_ioctl_gem_madvise",
        """static int
msm_ioctl_set_param(int fd, unsigned long request, void *arg)
{
   struct drm_msm_param *gp = arg;
   return gp->param > 0x10 ? -1 : 0;
}

static int
msm_ioctl_gem_madvise""",
    ),
    ("[DRM_MSM_SET_PARAM] = msm_ioctl_noop", "[DRM_MSM_SET_PARAM] = msm_ioctl_set_param"),
)

# ANV asks for objects of size 0 to learn what a kernel refuses
edit(
    "src/intel/tools/intel_noop_drm_shim.c",
    (
        "   struct drm_i915_gem_userptr *userptr = arg;\n",
        "   struct drm_i915_gem_userptr *userptr = arg;\n   if (!userptr->user_size)\n      return -1;\n",
    ),
    (
        "   struct drm_i915_gem_create_ext *create = arg;\n",
        "   struct drm_i915_gem_create_ext *create = arg;\n   if (!create->size)\n      return -1;\n",
    ),
)

# RADV wants a newer kernel interface
edit("src/amd/drm-shim/amdgpu_noop_drm_shim.c", ("version_minor = 49", "version_minor = 64"))

# gfx1151 and gfx1201, as copies of gfx1150 and navi31 under their own ids. Memory sizes and unit counts stay those of
# the copied device.
path = f"{root}/src/amd/drm-shim/amdgpu_devices.c"
with open(path) as f:
    devices = f.read()


def derived(old, new, rules):
    """The table entry of device `old` with each pair of `rules` replaced, called `new`."""
    at = devices.index(f'.name = "{old}"')
    start = devices.rindex("   {\n", 0, at)
    entry = re.match(r"   \{\n.*?\n   \}", devices[start:], re.S).group(0)
    for a, b in rules:
        if a not in entry:
            sys.exit(f"shims: the entry of {old} has no {a!r}")
        entry = entry.replace(a, b)
    return entry.replace(f'.name = "{old}"', f'.name = "{new}"')


if '"gfx1151"' not in devices:
    strix = [
        ("CHIP_GFX1150", "CHIP_GFX1151"),
        ("= 0xb0500", "= 0xb0501"),
        (".external_rev = 0x11", ".external_rev = 0xc1"),
    ]
    navi = devices[devices.index('.name = "navi31"') :]
    rdna4 = [
        ("CHIP_NAVI31", "CHIP_GFX1201"),
        (re.search(r"ip_discovery_version = (0xb\w+)", navi).group(1), "0xc0001"),
        ("version_major = 11", "version_major = 12"),
        (re.search(r"external_rev = \w+", navi).group(0), "external_rev = 0x51"),
        (re.search(r"\.family = \w+", navi).group(0), ".family = AMDGPU_FAMILY_GC_12_0_0"),
    ]
    new = [derived("gfx1150", "gfx1151", strix), derived("navi31", "gfx1201", rdna4)]
    end = devices.rindex("\n   }\n};")
    devices = devices[:end] + "\n   },\n" + ",\n".join(new) + devices[end + 5 :]
    with open(path, "w") as f:
        f.write(devices)
