"""Amaranth platforms of the Tang Nano boards; loaded only to build for them."""

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import GowinPlatform
from amaranth_boards.resources import (
    ButtonResources,
    LEDResources,
    SDRAMResource,
    SPIFlashResources,
    UARTResource,
)
from amaranth_boards.tang_nano_9k import TangNano9kPlatform as _TangNano9kPlatform


class TangNano20kPlatform(GowinPlatform):
    """Sipeed Tang Nano 20K.

    The SDRAM is in the package: its pins have positions (Gowin's table of GW2AR-18's connections,
    as Apicula's doc/sdram.md has it) but no numbers.
    """

    part = "GW2AR-LV18QN88C8/I7"
    family = "GW2AR-18C"
    #: What the family is called where other platforms say device.
    device = family
    default_clk = "clk27"
    pack_options = ()
    resources = [
        Resource("clk27", 0, Pins("4", dir="i"), Clock(27e6), Attrs(IO_TYPE="LVCMOS33")),
        *LEDResources(pins="15 16 17 18 19 20", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")),
        *ButtonResources(pins="88 87", attrs=Attrs(IO_TYPE="LVCMOS33", PULL_MODE="DOWN")),
        UARTResource(0, rx="70", tx="69", attrs=Attrs(IO_TYPE="LVCMOS33", PULL_MODE="UP")),
        *SPIFlashResources(
            0, cs_n="60", clk="59", copi="61", cipo="62", attrs=Attrs(IO_TYPE="LVCMOS33")
        ),
        SDRAMResource(
            0,
            clk="IOR11B",
            cke="IOL13A",
            cs_n="IOL14B",
            we_n="IOL12B",
            ras_n="IOL13B",
            cas_n="IOL14A",
            ba="IOR13A IOR12A",
            a="IOR14A IOR13B IOR14B IOR15A IOL16B IOL17B IOL16A IOL17A IOL15B IOL15A IOR12B",
            dq="IOL3A IOL3B IOL8A IOL8B IOL9A IOL9B IOL11A IOL11B "
            "IOR9B IOR9A IOR5B IOR6A IOR5A IOR4B IOR3B IOR3A "
            "IOL39B IOL39A IOL35B IOL35A IOL30B IOL30A IOL20A IOL18B "
            "IOR17A IOR16A IOR16B IOR17B IOR18A IOR18B IOR44A IOR44B",
            dqm="IOL12A IOR11A IOL18A IOR15B",
            attrs=Attrs(IO_TYPE="LVCMOS33"),
        ),
    ]
    connectors = []


class TangNano9kPlatform(_TangNano9kPlatform):
    """amaranth-boards' platform, with what our builds ask platforms for."""

    device = _TangNano9kPlatform.family
    #: The UART's and the LEDs' pins double as the configuration flash's.
    pack_options = ("--sspi_as_gpio", "--mspi_as_gpio")
