"""Mbatu: verb-initial, with five noun classes and class prefixes on everything that agrees."""

from trainables.corpora.grammar.description import Contrast, Language

_NOMINAL = """
            singular plural
    human      mu-     ba-
    tree       mo-     me-
    fruit      li-     ma-
    tool       ki-     vi-
    animal     ni-     zi-
"""
_PRONOMINAL = """
            singular plural
    human      yu-     wa-
    tree       gu-     gi-
    fruit      ri-     ga-
    tool       ci-     bi-
    animal     i-      dzi-
"""

MBATU = Language(
    name="mbatu",
    script="latin",
    segments={"C": "b d g k l m n p r s t v z mb nd ng ny", "V": "a e i o u"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "number": "singular singular plural",
        "class": "human human tree fruit tool animal",
        "tense": "present past past | future",
        "valency": "intransitive transitive | reporting",
    },
    lexicon={
        "pronoun": "= ngo",
        "demonstrative": "= le",
        "relative": "= mba",
        "associative": "= a",
        "emphatic": "= nye",
        "noun human": "120 CVCV CVCVCV",
        "noun tree": "80 CVCV CVCVCV",
        "noun fruit": "80 CVCV CVCVCV",
        "noun tool": "100 CVCV CVCVCV",
        "noun animal": "80 CVCV CVCVCV",
        "verb intransitive": "90 CVCa CVCVCa",
        "verb transitive": "150 CVCa CVCVCa",
        "verb reporting": "8 CVCa",
        "adjective": "110 CVCV CVCVCV",
        "adverb": "50 VCVCV",
        "temporal present": "5 VCVlo",
        "temporal past": "5 VCVlo",
        "preposition": "6 VCV",
        "numeral": "8 CVCV",
    },
    paradigms={
        "noun": (_NOMINAL,),
        "adjective": (_NOMINAL,),
        "numeral": (_NOMINAL,),
        "pronoun": (_PRONOMINAL,),
        "demonstrative": (_PRONOMINAL,),
        "relative": (_PRONOMINAL,),
        "associative": (_PRONOMINAL,),
        "emphatic": (_PRONOMINAL,),
        "verb": (
            """
            present past future
              na-    li-   ta-
            """,
            _PRONOMINAL,
        ),
    },
    rules={
        "episode": """
            4 assertion(class number referent) resumption(class number) assertion(class number referent)
            2 assertion(class number referent) resumption(class number) resumption(class number)
            2 assertion(class number referent) topicalised(class number referent)
            1 question(class number referent) resumption(class number) assertion
        """,
        "assertion": """
            2 intransitive(class number referent)
            5 transitive(class number referent)
            2 modified(class number referent)
            2 relativised(class number referent)
            2 dated(class number referent)
            1 reported(class number referent)
            1 coordinated(class)
        """,
        "intransitive": "1 verb(intransitive class number) subject(class number referent) adverb? pp? .",
        "transitive": "1 verb(transitive class number) subject(class number referent) object pp? .",
        "modified": """
            1 verb(intransitive class number) noun(class number referent) possessor(class number)
                adjective(class number) .
        """,
        "relativised": """
            1 verb(intransitive class number) noun(class number referent)
                relative_clause(class number) emphatic(class number) .
        """,
        "dated": "1 temporal(tense) verb(intransitive class number tense) subject(class number referent) .",
        "reported": """
            1 verb(reporting class number) subject(class number referent) 'kuti'
                verb(transitive class2 number2) noun(class2 number2) object .
        """,
        "coordinated": """
            1 verb(intransitive class plural) noun(class protagonist) 'na' noun(class companion) adverb? .
        """,
        "topicalised": """
            1 noun(class number referent) , verb(transitive class2 number2) subject(class2 number2)
                pronoun(class number) .
        """,
        "resumption": """
            3 verb(transitive class number) pronoun(class number) object .
            2 verb(intransitive class number) pronoun(class number) adverb? .
            1 'si' verb(transitive class number) pronoun(class number) object .
        """,
        "question": "1 'je' , verb(transitive class number) subject(class number referent) object ?",
        "subject": "1 np(class number referent)",
        "object": """
            5 np
            1 noun(class plural) numeral(class plural)
        """,
        "possessor": "1 associative(class number) noun",
        "relative_clause": "1 relative(class number) verb(transitive class number) noun",
        "pp": "1 preposition noun",
        "np": """
            4 noun(class number referent)
            3 noun(class number referent) adjective(class number)
            2 noun(class number referent) demonstrative(class number)
            1 noun(class number referent) possessor(class number)
        """,
    },
    contrasts=(
        Contrast("verb–subject agreement in noun class", "transitive", "verb", "class"),
        Contrast("verb–subject agreement in number", "intransitive", "verb", "number"),
        Contrast("adjective–noun agreement in noun class", "transitive", "subject adjective", "class"),
        Contrast(
            "adjective–noun agreement in noun class across a possessor",
            "modified",
            "adjective",
            "class",
            attractor="possessor noun",
        ),
        Contrast(
            "emphatic–noun agreement in number across a relative clause",
            "relativised",
            "emphatic",
            "number",
            attractor="relative_clause noun",
        ),
        Contrast("resumptive pronoun–antecedent agreement in noun class", "topicalised", "pronoun", "class"),
        Contrast("tense and temporal adverb", "dated", "verb", "tense", values="present past"),
        Contrast("order of preposition and noun", "transitive", "pp preposition"),
    ),
)
